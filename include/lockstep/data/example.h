// What a data set gives: a sample, or a batch of samples, with its target.
#pragma once

#include <cstdint>

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

}  // namespace lockstep
