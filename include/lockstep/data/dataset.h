// The interface of data sets, and data sets made of parts of others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// Samples by index, given in batches. Shared by all worker threads: get_batch must be thread-safe.
template <class Batch>
class Dataset {
 public:
  using BatchType = Batch;

  virtual ~Dataset() = default;
  /// Number of samples; must not change.
  virtual std::int64_t size() const = 0;
  /// The samples of these indices (each in [0, size()), repeats allowed), in this order, as one batch
  /// of their own memory. What it throws is rethrown to who asks for the batch.
  virtual Batch get_batch(std::span<const std::int64_t> indices) const = 0;
};

/// How data sets are passed on; copies share the data.
template <class Batch>
using DatasetPtr = std::shared_ptr<const Dataset<Batch>>;

/// How split() divides.
struct SplitOptions {
  std::uint64_t seed = 0;  ///< of the permutation
  bool shuffle = true;     ///< false: the first part is the beginning of the data set
};

namespace detail {

/// Position i of a part is sample order[i] of the whole.
struct SplitOrder {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
};
LOCKSTEP_API SplitOrder split_order(std::int64_t size, double fraction, const SplitOptions& options);
LOCKSTEP_API void check_indices(std::span<const std::int64_t> indices, std::int64_t size);
LOCKSTEP_API std::vector<std::int64_t> select(std::span<const std::int64_t> from,
                                              std::span<const std::int64_t> positions);

template <class Batch>
class Subset final : public Dataset<Batch> {
 public:
  Subset(DatasetPtr<Batch> whole, std::vector<std::int64_t> indices)
      : whole_(std::move(whole)), indices_(std::move(indices)) {
    check_indices(indices_, whole_->size());
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  Batch get_batch(std::span<const std::int64_t> indices) const override {
    return whole_->get_batch(select(indices_, indices));
  }

 private:
  DatasetPtr<Batch> whole_;
  std::vector<std::int64_t> indices_;
};

}  // namespace detail

/// The samples of `whole` at `indices`, in that order; repeats are allowed.
/// @throws DataError naming the index that is outside of it
template <class D>
DatasetPtr<typename D::BatchType> subset(std::shared_ptr<D> whole, std::vector<std::int64_t> indices) {
  return std::make_shared<detail::Subset<typename D::BatchType>>(std::move(whole), std::move(indices));
}

/// Divides `whole` in two: the first part gets round(fraction * size) samples. Shuffled, by a CPU
/// generator seeded with `seed`, unless the options say otherwise; both parts keep that order.
/// @throws ConfigError for a fraction outside (0, 1); DataError when a part would be empty
template <class D>
std::pair<DatasetPtr<typename D::BatchType>, DatasetPtr<typename D::BatchType>> split(
    std::shared_ptr<D> whole, double fraction, const SplitOptions& options = {}) {
  auto order = detail::split_order(whole->size(), fraction, options);
  return {subset(whole, std::move(order.first)), subset(whole, std::move(order.second))};
}

}  // namespace lockstep
