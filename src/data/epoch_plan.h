// Which samples go into which batch of one rank's epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/data/loader.h>

namespace lockstep::detail {

/// The batches of one rank's epoch, each a run of `indices`.
struct EpochPlan {
  std::vector<std::int64_t> indices;  ///< of this rank, in order
  std::vector<std::size_t> ends;      ///< where each batch ends in them

  std::int64_t num_batches() const { return static_cast<std::int64_t>(ends.size()); }
  /// The samples of batch `number`.
  std::span<const std::int64_t> batch(std::int64_t number) const {
    const auto i = static_cast<std::size_t>(number);
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(indices).subspan(begin, ends[i] - begin);
  }
};

/// What LoaderOptions say of the order and the batches.
/// @throws DataError when a sampler of the user's gives another number than it said, or a number out of range
EpochPlan plan_epoch(std::int64_t dataset_size, const LoaderOptions& options, const ShardSpec& spec,
                     std::int64_t epoch);

/// The number of its batches, without making it.
std::int64_t planned_batches(std::int64_t dataset_size, const LoaderOptions& options, const ShardSpec& spec);

/// Gives the batches of `plan` from number `first` on.
std::unique_ptr<BatchSource> plan_source(EpochPlan plan, FetchBatch fetch, std::int64_t first);

}  // namespace lockstep::detail
