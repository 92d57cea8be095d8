// Which samples go into which batch of one rank's epoch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::detail {

struct EpochPlan {
  std::vector<std::int64_t> indices;  ///< of this rank, in order
  std::int64_t batch_size = 1;
  std::int64_t num_batches = 0;
  std::uint64_t seed = 0;  ///< of batch_generator(), but for the batch's number

  /// The samples of batch `number`; the last batch may be short.
  std::span<const std::int64_t> batch(std::int64_t number) const {
    const auto begin = static_cast<std::size_t>(number * batch_size);
    return std::span(indices).subspan(begin,
                                      std::min(static_cast<std::size_t>(batch_size), indices.size() - begin));
  }
};

}  // namespace lockstep::detail
