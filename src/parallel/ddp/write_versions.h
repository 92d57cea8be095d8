// Which parameters were written to since the optimizer's step, as autograd counts writes, or got other
// memory.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

#include "parallel/replica_check.h"

namespace lockstep::detail {

/// Reads a counter and an address of each parameter, which costs nanoseconds. Writes to Tensor::data() are
/// not counted; set_data() gives a parameter other memory.
class LOCKSTEP_API WriteVersions {
 public:
  explicit WriteVersions(const std::vector<at::Tensor>& parameters);

  /// Notes what was written to since settle().
  void note_writes(ReplicaCheck& check) const;
  /// A step, which writes on all ranks alike, has ended.
  void settle();

 private:
  struct Known {
    at::Tensor parameter;
    std::int64_t version;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;  // weak, so that no other can have its address
  };

  std::vector<Known> known_;
};

}  // namespace lockstep::detail
