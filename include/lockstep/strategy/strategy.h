// Strategy: how a model is spread over ranks. Derive your own and hand a shared_ptr to the Trainer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/autograd.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/state_tree.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

class ClusterEnvironment;
class Precision;

/// How many ranks a node runs, and on how many nodes.
struct WorldShape {
  int devices = 1;    ///< ranks on this node
  int num_nodes = 1;  ///< hosts of the job
};

/// Tells `environment` the size of the world and this process's rank in it, where it does not know
/// them from outside.
LOCKSTEP_API void set_world_ranks(ClusterEnvironment& environment, const WorldShape& shape);

/// Trainer and Fabric call, in this order:
///   setup_environment -> { setup_module -> setup_optimizer* }* or setup_evaluation ->
///   { backward* -> clip_gradients -> optimizer_step }* -> module_state -> teardown
/// with state() and load_state() between steps. Every function is Collective unless it says otherwise.
class LOCKSTEP_API Strategy {
 public:
  virtual ~Strategy();

  /// The registered name, such as "ddp". Not Collective.
  virtual std::string_view name() const = 0;

  /// This rank's device, where modules are put. The CPU unless set_root_device() says otherwise, which
  /// Trainer and Fabric call before setup_environment(). Not Collective.
  at::Device root_device() const { return root_device_; }
  /// Called once, when the rank's device is known.
  void set_root_device(at::Device device) { root_device_ = device; }

  /// Forms the group of ranks; blocks until all have arrived or the strategy's deadline has passed.
  /// @throws Timeout naming the ranks that are missing; ConfigError when the environment disagrees
  virtual void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) = 0;

  /// The group of all ranks; a world of one before setup_environment(). Not Collective.
  virtual const Communicator& communicator() const = 0;

  /// In which types the run computes; once, between setup_environment() and the first setup_module(). A
  /// strategy may set up the precision's scaler. Not Collective.
  virtual void set_precision(Precision& precision);

  /// Whether modules are best built within a DeferredInit: setup_module() keeps a part of their tensors only,
  /// and materializes one after the other. Not Collective.
  virtual bool defers_init() const { return false; }

  /// Prepares `module` for training: moves, shards, makes the ranks equal. Several may be set up, none of
  /// them twice before teardown(). A module that nobody else owns any more is forgotten at the next call.
  virtual void setup_module(const std::shared_ptr<torch::nn::Module>& module) = 0;

  /// Lets go of `module`, so that it can be frozen, moved or converted and set up again by setup_module().
  /// Its optimizers stay with it. Not Collective. @throws ConfigError when it is not set up
  virtual void release_module(const torch::nn::Module& module);

  /// Creates an optimizer of the trainable parameters of `module`, which has been set up. Collective.
  /// @throws CollectiveMismatch, in strategies of several ranks, where the ranks make different ones
  virtual std::unique_ptr<Optimizer> setup_optimizer(torch::nn::Module& module,
                                                     const OptimizerFactory& factory);

  /// Prepares `module` for evaluation: every rank gets rank 0's weights.
  virtual void setup_evaluation(torch::nn::Module& module) = 0;

  /// Whether buffers of modules that are set up follow rank 0's after every step; callers then have those of
  /// parts that no optimizer trains follow, too. Not Collective.
  virtual bool broadcasts_buffers() const { return false; }

  /// Runs backward from `loss`. Afterwards the gradients of the modules in `synced` are the mean over
  /// ranks of what each rank has accumulated; those of other modules have added up locally, and nothing
  /// was sent for them. All ranks give the same modules in the same order; gradients travel from the last
  /// module's to the first's, whatever order they come in. When it throws on all ranks alike, the next one
  /// starts clean: of gradients stays what they have got by then, or nothing where the strategy shards.
  virtual void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                        const BackwardOptions& options = {}) = 0;

  /// Whether gradients are averaged in every backward, also within a window that accumulates: callers then
  /// give all modules in each. Not Collective.
  virtual bool averages_every_backward() const { return false; }

  /// What the gradients of a window that is open lie on, each under a name of its own: by default the
  /// parameters of `module`. Not Collective.
  virtual std::vector<NamedParameter> accumulating_parameters(torch::nn::Module& module);

  /// Whether a forward pass of `module` communicates: all ranks run it together. Not Collective.
  virtual bool shares_forward(const torch::nn::Module& module) const;

  /// While the result lives, this rank may run `module` in evaluation by itself; null where it always may.
  /// Where a strategy shards, that takes the memory of the whole model. Collective, blocking.
  virtual std::shared_ptr<void> hold_whole(torch::nn::Module& module);

  /// Clips the gradients of `optimizer`'s parameters; gradients are those of the global batch. Returns
  /// their norm before that, or 0 where each value is clipped. By norm it may be optimizer_step() that
  /// multiplies them.
  virtual double clip_gradients(Optimizer& optimizer, const GradientClip& clip);

  /// clip_gradients() for who need not know the norm at once: strategies that can leave it on the device do.
  /// By default clip_gradients().
  virtual Scalar clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip);

  /// The norm of the gradients of `optimizer`'s parameters, which are those of the global batch.
  /// @throws as grad_norm()
  virtual double grad_norm(Optimizer& optimizer, double norm_type = 2.0);

  /// Updates the parameters of `optimizer`, which setup_optimizer() made.
  virtual void optimizer_step(Optimizer& optimizer) = 0;

  /// The same for an optimizer that needs a closure; returns the first loss. The default calls step_with().
  virtual double optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure);

  /// Whether all ranks that hold the same part of `module` hold the same values of it: before a checkpoint,
  /// and now and then within optimizer_step(). @throws Error on all ranks naming a parameter that differs,
  /// such as one that forward writes to. Nothing by default.
  virtual void check_replicas(torch::nn::Module& module);

  /// Multiplies the gradients of `optimizer`'s parameters by `factor`, which a gradient scaler asks for, when
  /// optimizer_step() reads them, and until then leaves them as they are. False: not under this strategy, and
  /// nothing was done. Not Collective.
  virtual bool unscale_in_step(Optimizer& optimizer, double factor);

  /// In place of optimizer_step() where scaled gradients have overflowed: all of a step but the update.
  virtual void skip_optimizer_step(Optimizer& optimizer);

  /// Whether each rank holds a part of the gradients after backward(), so that what is found in them has to
  /// be agreed on. Not Collective.
  virtual bool shards_gradients() const { return false; }

  /// All parameters and buffers, full and unsharded, under their PyTorch names. Complete on rank 0;
  /// other ranks may get nothing. The tensors alias the module's where they can.
  virtual std::map<std::string, at::Tensor> module_state(torch::nn::Module& module);

  /// What a checkpoint is to hold of `module`: module_state() by default; of a strategy that shards,
  /// TensorShards, if it is told to keep them.
  virtual StateTree saved_state(torch::nn::Module& module);

  /// The same with TensorShards wherever this rank has but a run of a tensor, so that nothing is gathered.
  /// Not Collective. The default is saved_state().
  virtual StateTree saved_shards(torch::nn::Module& module);

  /// Which runs of which tensors this rank is to be given for load_module(): those that are TensorShards
  /// here; of all others it gets the whole. Not Collective.
  virtual StateTree wanted_state(torch::nn::Module& module);

  /// Copies `state`, whole tensors or the runs that wanted_state() asked for, into `module`; as
  /// load_module_state(). @throws CheckpointError; nothing is copied then
  virtual IncompatibleKeys load_module(torch::nn::Module& module, const StateTree& state, bool strict);

  /// The state of an optimizer that setup_optimizer() made, for a checkpoint: state_of(), with TensorShards
  /// where this rank has but a run of a tensor; of runs that several ranks have one of them gives it. Not
  /// Collective.
  virtual StateTree optimizer_state(Optimizer& optimizer);

  /// wanted_state() of an optimizer. Not Collective.
  virtual StateTree wanted_optimizer_state(Optimizer& optimizer);

  /// Takes it back, in runs or whole. Not Collective. @throws CheckpointError; nothing has changed then
  virtual void load_optimizer(Optimizer& optimizer, const StateTree& state);

  /// The parameters of modules that `optimizer` trains, which need not be the tensors that it steps. Not
  /// Collective.
  virtual std::vector<at::Tensor> trained_parameters(const Optimizer& optimizer);

  /// Payload that this rank handed to others so far, by any group of the strategy. Not Collective.
  virtual std::uint64_t bytes_sent() const;

  /// Ranks along each axis, for checkpoints to tell: {"replicate", 4} by default. Not Collective.
  virtual std::map<std::string, int> mesh() const;

  /// What the strategy keeps from step to step beside modules and optimizers, this rank's own: compression's
  /// errors, for one. To be saved and loaded per rank, for training to go on to the bit. Empty by default.
  /// Not Collective.
  virtual StateTree state() const { return {}; }
  /// Takes it back, once the same modules are set up in the same order. Not Collective.
  /// @throws CheckpointError
  virtual void load_state(const StateTree& state);

  /// Forgets modules and their optimizers. The group of ranks is left when the strategy is destroyed. Not
  /// Collective: also called after a failure.
  virtual void teardown() = 0;

  /// Waits until all ranks are here.
  void barrier() const { communicator().barrier(); }

 private:
  at::Device root_device_ = at::kCPU;
};

}  // namespace lockstep
