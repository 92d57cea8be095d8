// Memory that algorithms keep from one collective to the next.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// Fresh pages cost more than the sums that are made in them.
class Scratch {
 public:
  /// At least `bytes` bytes, aligned for every dtype; contents are undefined, and lost at the next call.
  at::Tensor get(std::int64_t bytes);

 private:
  at::Tensor memory_;
};

}  // namespace lockstep::detail
