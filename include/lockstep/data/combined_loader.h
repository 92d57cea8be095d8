// Several loaders as one: Lightning's CombinedLoader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/data/loader.h>

namespace lockstep {

/// What happens when loaders have different numbers of batches. Lightning's names.
enum class CombinedMode {
  kMinSize,       ///< a batch of each, until the shortest ends
  kMaxSizeCycle,  ///< a batch of each, until each has ended once; the shorter begin anew, in a new order
  kMaxSize,       ///< a batch of each, until the longest ends; the others then give none
  kSequential     ///< all of the first, then of the second, ...: one gives a batch, the others none
};

LOCKSTEP_API std::span<const OptionName<CombinedMode>> option_names(CombinedMode);

/// How combined() combines.
struct CombinedOptions {
  EnumOption<CombinedMode> mode = CombinedMode::kMinSize;  ///< when the loaders end together
  std::vector<std::int64_t> limits = {};  ///< at most so many batches of each loader; empty: all
};

/// A batch of each loader, or none.
template <class... Batches>
using CombinedBatch = std::tuple<std::optional<Batches>...>;

namespace detail {

/// Makes one batch of those of the loaders; where one gives none, it is empty.
using Assemble = std::function<AnyBatch(std::span<const AnyBatch> parts)>;

/// @throws ConfigError for no loaders, another number of limits than of loaders, or negative ones
LOCKSTEP_API std::shared_ptr<AnyLoader> make_combined(const CombinedOptions& options,
                                                      std::vector<std::shared_ptr<AnyLoader>> loaders,
                                                      Assemble assemble);

template <class Batch>
std::optional<Batch> part(const AnyBatch& batch) {
  return batch.empty() ? std::nullopt : std::optional<Batch>(batch.get<Batch>());
}

LOCKSTEP_API std::int64_t total_size(std::span<const AnyBatch> parts);

template <class... Batches, std::size_t... I>
AnyBatch assemble_tuple(std::span<const AnyBatch> parts, std::index_sequence<I...>) {
  using Tuple = CombinedBatch<Batches...>;
  return AnyBatch(std::make_shared<const Tuple>(part<Batches>(parts[I])...), total_size(parts));
}

}  // namespace detail

/// One loader of several: `ls::combined({.mode = ls::CombinedMode::kMaxSize}, images, texts)` gives batches
/// that `const auto& [image, text] = batch` takes apart; each part is a std::optional. A batch counts as many
/// samples as its parts together. Any batch of an epoch can be begun with, as with any loader; where a loader
/// does not know its length, the ones before are read for it. The n-th time that kMaxSizeCycle begins a
/// loader anew it gets the order of epoch + n * 2^20.
/// @throws ConfigError for another number of limits than of loaders, or negative ones
template <class... Batches>
requires(sizeof...(Batches) >
         0) Loader<CombinedBatch<Batches...>> combined(const CombinedOptions& options,
                                                       const Loader<Batches>&... loaders) {
  const auto assemble = [](std::span<const AnyBatch> parts) {
    return detail::assemble_tuple<Batches...>(parts, std::index_sequence_for<Batches...>());
  };
  return Loader<CombinedBatch<Batches...>>(
      detail::make_combined(options, {std::shared_ptr<AnyLoader>(loaders)...}, assemble));
}

/// The same of any number of loaders of one type: a batch is a vector with an element for each.
/// @throws ConfigError also when there is none
template <class Batch>
Loader<std::vector<std::optional<Batch>>> combined(const CombinedOptions& options,
                                                   const std::vector<Loader<Batch>>& loaders) {
  const auto assemble = [](std::span<const AnyBatch> parts) {
    std::vector<std::optional<Batch>> batch;
    for (const AnyBatch& part : parts) batch.push_back(detail::part<Batch>(part));
    return AnyBatch(std::make_shared<const std::vector<std::optional<Batch>>>(std::move(batch)),
                    detail::total_size(parts));
  };
  return Loader<std::vector<std::optional<Batch>>>(
      detail::make_combined(options, {loaders.begin(), loaders.end()}, assemble));
}

}  // namespace lockstep
