// DdpEngine: averages the gradients of a module over ranks, during backward.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/ddp/ddp.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Drives c10d's Reducer for a module that needs no wrapper. The order of calls in one step:
///
///     auto loss = ...;                    // any forward
///     engine.prepare_backward(loss);      // left out for all but the last backward of a window
///     loss.backward();                    // gradients accumulate; the last one also averages them
///     engine.check_backward_finished();
///     optimizer.step();
///     engine.after_step();
///
/// After the prepared backward every rank's gradients are the mean over ranks of what each rank had
/// accumulated, with the same bits on every rank. A backward without prepare_backward() communicates
/// nothing. All ranks must prepare the same backward passes. Neither parameters nor buffers may be
/// replaced between construction and destruction; their values may change freely.
class LOCKSTEP_API DdpEngine {
 public:
  /// Compares the modules of all ranks, gives every rank the parameters and buffers of rank 0 and
  /// plans the buckets. Collective, blocking. Holds the module's tensors, not the module.
  /// @throws CollectiveMismatch naming the first parameter or buffer that differs between ranks
  DdpEngine(const torch::nn::Module& module, Communicator comm, const Ddp& options = {});
  /// Does not communicate.
  ~DdpEngine();
  DdpEngine(const DdpEngine&) = delete;
  DdpEngine& operator=(const DdpEngine&) = delete;

  /// Announces that the next backward, from `loss`, averages gradients. The first call after the first
  /// averaged backward is collective (it agrees on buckets in the order in which gradients came).
  /// @throws CommError naming parameters that got no gradient in the backward before
  void prepare_backward(const at::Tensor& loss);

  /// Right after backward: whether every parameter took part. Local.
  /// @throws CommError naming parameters that got no gradient, and the option find_unused_parameters
  void check_backward_finished();

  /// Forgets a backward that did not end, for instance because a function of the graph threw. Local, but
  /// all ranks must do it, after the same pass. Gradients are as they are: clear them. A collective that
  /// failed cannot be mended: the communicator is of no further use then.
  void reset();

  /// After the optimizer's step: buffers become rank 0's, if broadcast_buffers. Collective, blocking.
  void after_step();

  /// Gives every rank the parameters and buffers of rank 0, where nothing is to be trained, after
  /// comparing modules as the constructor does. Collective, blocking.
  static void broadcast_module_states(const torch::nn::Module& module, const Communicator& comm);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
