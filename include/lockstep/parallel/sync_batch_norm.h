// SyncBatchNorm: batch normalisation over the batches of all ranks, of the modules that a model has already.
#pragma once

#include <cstddef>
#include <memory>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// As long as it lives, the BatchNorm1d, BatchNorm2d and BatchNorm3d modules of a model normalise by the mean
/// and variance over all ranks' batches while they train, as torch.nn.SyncBatchNorm:
///
///     SyncBatchNorm sync(*model, comm.split(0).value());
///     engine.backward(loss_of(*model, batch));  // as ever
///
/// Outputs, gradients and running statistics are those of one process on all batches joined. No module is
/// replaced: names, parameters, optimizers and checkpoints stay. A layer in evaluation mode, and all of them
/// in a world of one, compute as without it. Each training forward of a layer is one all_gather of 2 * C + 1
/// float64 (C channels), each backward one all_reduce of 2 * C, none if its input needs no gradient; both
/// block. Statistics are merged in float64 and in the order of ranks.
///
/// Batches may differ in size between ranks and be empty. LibTorch itself refuses one value per channel
/// (such as a BatchNorm1d's single row), also where other ranks have more. All ranks must call the same
/// layers in the same order, forward and backward. Gradients of gradients are refused. Clones of the model
/// are not synchronised.
class LOCKSTEP_API SyncBatchNorm {
 public:
  /// Holds the group of ranks, not the modules. Their collectives take turns with all others of `comm`: a
  /// group of its own spares them from waiting for others, and for buckets of Ddp where ranks differ in the
  /// parameters that they use. Does not communicate.
  /// @throws ConfigError naming a layer that is synchronised already; a BatchNorm module given as the model
  ///   itself must be owned by a std::shared_ptr; as ScopedBackwardObserver
  SyncBatchNorm(torch::nn::Module& module, Communicator comm);

  /// The layers are what they were. Does not communicate. In the same thread, outside of forward and
  /// backward; a backward of what was computed before is still synchronised.
  ~SyncBatchNorm();
  SyncBatchNorm(SyncBatchNorm&&) noexcept;
  SyncBatchNorm& operator=(SyncBatchNorm&&) noexcept;

  /// How many layers are synchronised; 0 in a world of one.
  std::size_t size() const;

  /// Whether they still are. Module::to(dtype) and torch::load() give buffers another memory, and assigning a
  /// tensor to `running_mean` does: make another SyncBatchNorm then. Called before each backward of this
  /// thread, so that nothing is trained without being synchronised. Local.
  /// @throws ConfigError naming the layer
  void check() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
