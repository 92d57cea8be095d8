// The average over ranks, in two halves, for comm hooks.
#pragma once

#include <optional>

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

}  // namespace lockstep::detail
