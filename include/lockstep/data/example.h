// What a data set gives: a sample, or a batch of samples, with its target.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// One sample and its target, or a batch of them: then both tensors have a leading batch dimension.
struct Example {
  at::Tensor data;
  at::Tensor target;  ///< undefined when the data set has no targets
};

/// Samples in a batch: the extent of dim 0. For a batch type of your own, put a function of this name
/// beside it; without one, a batch counts as many samples as were asked for.
/// @throws DataError when the tensor is undefined or a scalar
LOCKSTEP_API std::int64_t batch_size(const at::Tensor& batch);
LOCKSTEP_API std::int64_t batch_size(const Example& batch);

/// Samples of equal shapes as one batch; without targets when the first has none.
/// @throws DataError naming the first sample that does not fit, and its shape
LOCKSTEP_API at::Tensor collate(std::span<const at::Tensor> samples);
LOCKSTEP_API Example collate(std::span<const Example> samples);

/// The batch in page-locked memory, from which copies to a GPU need not be waited for: what loaders do with
/// LoaderOptions::pin_memory. For a batch type of your own, put a function of this name beside it.
LOCKSTEP_API at::Tensor pin_memory(const at::Tensor& batch);
LOCKSTEP_API Example pin_memory(const Example& batch);

}  // namespace lockstep
