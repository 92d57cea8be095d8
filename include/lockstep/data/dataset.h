// Data sets: what they give, their interface, parts of them, and those that lie in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// One sample and its target, or a batch of them: then both tensors have a leading batch dimension.
struct Example {
  at::Tensor data;    ///< a sample, or the samples of a batch along the first dimension
  at::Tensor target;  ///< undefined when the data set has no targets
};

/// Samples in a batch: the extent of dim 0. For a batch type of your own, put a function of this name
/// beside it; without one, a batch counts as many samples as were asked for.
/// @throws DataError when the tensor is undefined or a scalar
LOCKSTEP_API std::int64_t batch_size(const at::Tensor& batch);
/// Samples of the batch: the size of its first dimension.
LOCKSTEP_API std::int64_t batch_size(const Example& batch);

/// Samples of equal shapes as one batch; without targets when the first has none.
/// @throws DataError naming the first sample that does not fit, and its shape
LOCKSTEP_API at::Tensor collate(std::span<const at::Tensor> samples);
/// Stacks samples along a new first dimension.
LOCKSTEP_API Example collate(std::span<const Example> samples);

/// The batch in page-locked memory, from which copies to a GPU need not be waited for: what loaders do with
/// LoaderOptions::pin_memory. For a batch type of your own, put a function of this name beside it.
LOCKSTEP_API at::Tensor pin_memory(const at::Tensor& batch);
/// The batch in page-locked memory, from which devices copy faster.
LOCKSTEP_API Example pin_memory(const Example& batch);

/// Samples by index, given in batches. Shared by all worker threads: get_batch must be thread-safe.
template <class Batch>
class Dataset {
 public:
  /// What get_batch() makes.
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

/// Row i of `data` and of `target` is sample i.
class LOCKSTEP_API TensorDataset final : public Dataset<Example> {
 public:
  /// `data` [n, ...]; `target` [n, ...] or undefined. Shares the tensors' memory where it is contiguous.
  /// @throws DataError when `data` is undefined or a scalar, or the numbers of rows differ
  explicit TensorDataset(const at::Tensor& data, const at::Tensor& target = {});

  std::int64_t size() const override { return data_.size(0); }
  /// @throws DataError naming an index that is out of range
  Example get_batch(std::span<const std::int64_t> indices) const override;

  /// All samples, along the first dimension.
  const at::Tensor& data() const { return data_; }
  /// The targets of all samples, along the first dimension.
  const at::Tensor& target() const { return target_; }

 private:
  at::Tensor data_;
  at::Tensor target_;
};

/// A TensorDataset, to be passed on.
LOCKSTEP_API DatasetPtr<Example> tensor_dataset(const at::Tensor& data, const at::Tensor& target = {});

}  // namespace lockstep
