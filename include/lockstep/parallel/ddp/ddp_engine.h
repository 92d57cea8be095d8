// DdpEngine: averages the gradients of a module over ranks, during backward.
#pragma once

#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/autograd.h>
#include <lockstep/parallel/ddp/comm_hook.h>
#include <lockstep/parallel/ddp/ddp.h>
#include <lockstep/state/state_tree.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// What DistributedDataParallel is in Python, for a module that needs no wrapper. One step:
///
///     auto loss = ...;             // any forward
///     engine.backward(loss);       // gradients are averaged while backward runs
///     optimizer.step();
///     engine.after_step();
///
/// After backward() every rank's gradients are the mean over ranks of what each rank had accumulated,
/// with the same bits on every rank. To accumulate over several passes, run all but the last one by
/// loss.backward(), or under no_sync(): they communicate nothing. Several averaged passes in a step are
/// fine as well: their means add up. All ranks must average in the same passes.
///
/// The values of parameters and buffers may change freely, not so their number, shape, strides, dtype,
/// device or requires_grad, not even for a while: such changes are named when the next backward is prepared.
/// (One exception: with find_unused_parameters, parameters may be frozen for a while.) Gradients must be
/// dense. If the module is owned by a
/// std::shared_ptr, parameters and buffers that were added, removed or replaced are found, too, by looking
/// at the first ten passes and every hundredth.
class LOCKSTEP_API DdpEngine {
 public:
  /// Compares the modules of all ranks, gives every rank the parameters and buffers of rank 0 and
  /// plans the buckets. Collective, blocking. Holds the module's tensors, not the module.
  /// @throws CollectiveMismatch naming the first parameter or buffer that differs between ranks
  /// @throws ConfigError for options that contradict each other
  DdpEngine(const torch::nn::Module& module, Communicator comm, const Ddp& options = {});
  /// Does not communicate.
  ~DdpEngine();
  DdpEngine(const DdpEngine&) = delete;
  DdpEngine& operator=(const DdpEngine&) = delete;

  /// loss.backward(), which averages the gradients; under no_sync() it does not. When it throws on all ranks
  /// alike the next one starts clean, but gradients are as they are: clear them. A collective that failed
  /// cannot be mended: the communicator is of no further use then. Collective, blocking.
  /// @throws CommError naming parameters that got no gradient, and the option find_unused_parameters
  /// @throws ConfigError naming a parameter or buffer that is no longer what it was at construction, or when
  /// the loss depends on no parameter at all; for create_graph, unless under no_sync(). Whatever a hook of
  /// the graph throws
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});

  /// One backward that averages the gradients of several modules, no two of which share a parameter. They
  /// send in the order of `engines`, the same on all ranks: the one whose gradients come first should be
  /// first. As backward() else.
  static void backward(const at::Tensor& loss, std::span<DdpEngine* const> engines,
                       const BackwardOptions& options = {});

  /// After the optimizer's step: buffers become rank 0's, if broadcast_buffers; now and then as
  /// check_replicas(). Collective, blocking.
  void after_step();

  /// Compares, between ranks, parameters that something else than a step between backward() and after_step()
  /// has written to. Collective, blocking.
  /// @throws Error on all ranks naming a parameter that differs, such as one that forward writes to
  void check_replicas();

  /// While it lives, backward passes stay local.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DdpEngine& engine);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DdpEngine& engine_;
  };

  /// `const auto local = engine.no_sync();`: until the end of the scope backward() leaves out whatever
  /// concerns other ranks. Scopes may be nested.
  NoSync no_sync() { return NoSync(*this); }

  /// Replaces what the options say about how gradients travel. Before the first backward; on all ranks.
  /// @throws ConfigError later on
  void register_comm_hook(CommHook hook);

  /// What compression keeps from step to step (ddp_comm_hook powerSGD), of this rank: what training goes on
  /// from to the bit. Empty for other hooks; hooks of one's own are not asked. Tensors are copies. Not
  /// Collective.
  StateTree state() const;
  /// Takes it back, into an engine of the same module and options; every rank its own. Not Collective.
  /// @throws CheckpointError naming what is missing or of another kind
  void load_state(const StateTree& state);

  /// Buckets and times so far. Local; not for the path of a step (it builds strings).
  DdpLoggingData logging_data() const;

  /// The group whose ranks average.
  const Communicator& communicator() const;

  /// Gives every rank the parameters and buffers of rank 0, where nothing is to be trained, after
  /// comparing modules as the constructor does. Collective, blocking.
  static void broadcast_module_states(const torch::nn::Module& module, const Communicator& comm);

 private:
  friend class Join;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
