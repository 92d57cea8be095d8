// DeepSpeed's scopes for parameters that are in shards: zero::Init, zero::GatheredParameters, and
// engine.coalesce_grad_reduction(), of many backward passes and one reduction.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/deferred_init.h>

namespace torch::nn {
class Module;
}

namespace lockstep::zero {

/// How a model is built in shards.
struct InitOptions {
  bool enabled = true;  ///< false: the scope does nothing
};

/// DeferredInit by DeepSpeed's name: modules that are made while it lives have no memory, and take their
/// values when a strategy sets them up, where a rank keeps its shards and lets the rest go.
///
///     auto net = [] { const ls::zero::Init scope; return Gpt(options); }();
///
/// DeepSpeed's deepspeed.zero.Init shards each module as soon as it is made, with rank 0's values; here all
/// of that is at setup, so that no group of ranks and no configuration is needed before, and `dtype`,
/// `remote_device` and `pin_memory` are the strategy's. Scopes nest. Not Collective.
class LOCKSTEP_API Init {
 public:
  /// @throws as DeferredInit
  explicit Init(InitOptions options = {});

 private:
  std::optional<DeferredInit> scope_;
};

/// How parameters are gathered.
struct GatherOptions {
  std::optional<int> modifier_rank = {};  ///< whose writes are kept; none: nobody may write
  bool enabled = true;                    ///< false: the guard does nothing
};

/// While it lives, the parameters given to it are whole on every rank, whatever the strategy: pointers
/// (data_ptr, accessor, torch::save) and operators read them, also on one rank alone.
///
///     const auto& ranks = fabric.strategy().communicator();
///     ls::zero::GatheredParameters whole(*net->head, ranks, {.modifier_rank = 0});
///     if (ranks.rank() == 0) read_table(net->head->weight.data_ptr<float>());
///     whole.close();  // rank 0's values go to every rank's shard
///
/// With `modifier_rank` that rank may write, by operators or pointers, under torch::NoGradGuard as ever;
/// close() gives its values to all, and in 16 bits what was not changed keeps its digits. Where close() is
/// not called, as after an exception, shards stay as they were, and so do parameters that are not sharded.
/// May lie inside of each other; where the inner one's close() keeps a parameter it also keeps what was
/// written to it before, by the same modifier_rank. Forward and backward may run meanwhile; an optimizer must
/// not step. Values are the exact ones, with which forward computes meanwhile, also where weights travel
/// quantized (ZeroPlusPlus). Memory: the units (see fsdp) that the parameters are in; a copy of those that
/// are not sharded, or that another guard holds, too.
///
/// deepspeed.zero.GatheredParameters closes by itself; a destructor here neither throws nor communicates.
class LOCKSTEP_API GatheredParameters {
 public:
  /// Of `module`, all; or those given, each once. `ranks`: all that share them. Parameters that are deferred
  /// and not set up yet get their values. Collective, blocking.
  /// @throws ConfigError for a modifier_rank that is none, or `ranks` that are not those of the shards;
  /// CollectiveMismatch naming ranks that gave other parameters or another modifier_rank
  GatheredParameters(const torch::nn::Module& module, const Communicator& ranks, GatherOptions options = {});
  /// Gathers `parameters`, which `ranks` share. *Collective.*
  GatheredParameters(std::span<const at::Tensor> parameters, const Communicator& ranks,
                     GatherOptions options = {});
  /// Does not communicate. Without close() what was written is dropped, and a warning says so unless an
  /// exception is on its way.
  ~GatheredParameters();
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;

  /// Ends it, and keeps what modifier_rank wrote. Nothing happens the second time. Collective, blocking.
  /// @throws ConfigError, on all ranks, naming the parameter and the rank that wrote to it and is not
  /// modifier_rank; nothing is kept then
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null where it does nothing
};

}  // namespace lockstep::zero

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
