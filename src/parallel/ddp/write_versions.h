// Which parameters were written to since the optimizer's step, as autograd counts writes.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

#include "parallel/replica_check.h"

namespace lockstep::detail {

/// Reads a counter of each parameter, which costs nanoseconds. It does not count writes to Tensor::data().
class LOCKSTEP_API WriteVersions {
 public:
  explicit WriteVersions(std::vector<at::Tensor> parameters);

  /// Notes what was written to since settle().
  void note_writes(ReplicaCheck& check) const;
  /// A step, which writes on all ranks alike, has ended.
  void settle();

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<std::int64_t> versions_;
};

}  // namespace lockstep::detail
