// Collectives that a compiled program carries out itself, by functions of the host that it calls.
#pragma once

#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// Works on tensors of one XLA device, which hold the results as soon as they are asked for. What fails, as a
/// lost peer does, is thrown when anything of the device is read or run. The ranks have a group of their own
/// for it: the program may call when the host has gone on to other collectives.
class ProgramCollectives {
 public:
  /// Null where the plug-in's programs cannot call the host, or there is one rank. Collective, blocking.
  /// @throws CollectiveMismatch where only some ranks' plug-ins can
  static std::shared_ptr<ProgramCollectives> make(const Communicator& comm);

  explicit ProgramCollectives(Communicator group);
  /// Does not communicate.
  ~ProgramCollectives();
  ProgramCollectives(const ProgramCollectives&) = delete;
  ProgramCollectives& operator=(const ProgramCollectives&) = delete;

  /// Each becomes its mean over ranks, to the bits of Communicator::all_reduce(). Large lists go in several
  /// calls, the last tensors first. All ranks give as many of equal shapes. Collective, does not block.
  void average(std::span<const at::Tensor> tensors) const;
  /// Each becomes rank 0's; as part of the step of an optimizer that was recorded before. Collective, does
  /// not block.
  void broadcast(std::span<const at::Tensor> tensors) const;

  std::uint64_t bytes_sent() const { return group_.bytes_sent(); }

 private:
  Communicator group_;
  int average_, broadcast_;
};

/// The same by the host, which ends the program before it, and waits for it.
void average_on_host(const Communicator& comm, std::span<const at::Tensor> tensors);
void broadcast_on_host(const Communicator& comm, std::span<const at::Tensor> tensors);

}  // namespace lockstep::detail
