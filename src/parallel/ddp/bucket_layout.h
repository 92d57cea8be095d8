// Where the gradients of a bucket lie in its buffer, and their average over ranks, in two halves.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// A tensor on its way to becoming its average over ranks.
class PendingAverage {
 public:
  PendingAverage() = default;
  /// Starts it: `tensor` is summed, then divided by `divisor`. Collective, asynchronous.
  PendingAverage(at::Tensor tensor, int divisor, const Communicator& comm);

  /// Blocks until it is done, and returns the tensor. To be called once.
  at::Tensor finish() const;

 private:
  at::Tensor tensor_;
  std::optional<int> divisor_;  // what is left to do once the sum is there
  Work work_;
};

/// The parts of a flat `buffer` that hold the gradients of `parameters`, in their shapes. As c10d's Reducer
/// lays them out: one after the other, each with its parameter's strides if that is dense, else row by row.
std::vector<at::Tensor> gradient_views(const at::Tensor& buffer, const std::vector<at::Tensor>& parameters);

}  // namespace lockstep::detail
