// DeepSpeed's engine.coalesce_grad_reduction(): many backward passes, one reduction.
#pragma once

#include <memory>

#include <lockstep/base/export.h>

namespace torch::nn {
class Module;
}

namespace lockstep::deepspeed {

/// While it lives, backward passes add up the gradients of a sharded model on this rank and send nothing,
/// also at ZeRO's stages 2 and 3, which average every micro-batch otherwise; close() averages the sums at
/// once:
///
///     optimizer->zero_grad();
///     ls::deepspeed::CoalesceGradReduction together(*model);
///     for (const auto& pair : pairs) fabric.backward(loss_of(pair));
///     together.close();
///     optimizer->step();
///
/// Meanwhile the gradients are whole on every rank, in the type that the model computes in, in which they add
/// up, each rank's first; the optimizer cannot step. It needs not enclose forward passes. All ranks do alike.
class LOCKSTEP_API CoalesceGradReduction {
 public:
  /// Not Collective.
  /// @throws ConfigError for a model that is not sharded (Fabric::no_backward_sync() is for those), and
  /// within another such scope
  explicit CoalesceGradReduction(const torch::nn::Module& module);
  /// Does not communicate: without close(), as after an exception, gradients wait for the next backward, and
  /// a warning says so unless an exception is on its way.
  ~CoalesceGradReduction();
  CoalesceGradReduction(const CoalesceGradReduction&) = delete;
  CoalesceGradReduction& operator=(const CoalesceGradReduction&) = delete;

  /// Ends it, and averages what has been added up. Nothing happens the second time. Collective, blocking.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::deepspeed
