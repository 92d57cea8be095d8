// Parameters that forward writes to: ranks that hold copies of one write what their own batches say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// Whether what ranks may have changed is compared after so many steps: 1, 2, 4, ..., and every 64 of them.
bool is_compared_after(std::int64_t steps);

/// What this rank holds of a parameter.
struct Replica {
  std::string name;
  at::Tensor tensor;
  int shards = 1;  ///< ranks r and r + shards hold the same
};

/// Compares between ranks what some of them have written to, other than by an optimizer's step: after steps
/// 1, 2, 4, ... of a run, and every 64 of them. The rest of the time a write costs nothing. All ranks may
/// write alike.
class LOCKSTEP_API ReplicaCheck {
 public:
  /// Of tensors with numbers below `count`, which `replica_of` describes at any time.
  ReplicaCheck(Communicator comm, std::size_t count, std::function<Replica(std::size_t)> replica_of);

  /// This rank has written to one. Not Collective.
  void note_write(std::size_t number) { is_written_[number] = true; }

  /// After a step of an optimizer. Collective, blocking. @throws as compare()
  void end_step();

  /// Collective, blocking. @throws Error on all ranks naming a parameter that differs, and where
  void compare();

 private:
  std::vector<std::size_t> written_anywhere() const;
  at::Tensor checksums_of(const std::vector<std::size_t>& numbers) const;

  Communicator comm_;
  std::function<Replica(std::size_t)> replica_of_;
  std::vector<bool> is_written_;
  std::int64_t steps_ = 0;
};

/// Tells which parameters were written to since the optimizer's step, as autograd counts writes, or got other
/// memory. It reads a counter and an address of each parameter, which costs nanoseconds. Writes to
/// Tensor::data() are not counted; set_data() gives a parameter other memory.
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
