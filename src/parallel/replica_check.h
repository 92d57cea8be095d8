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

// Which parameters were written to since the optimizer's step, as autograd counts writes.

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
