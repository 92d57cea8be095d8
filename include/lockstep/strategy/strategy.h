// Strategy: how a model is spread over ranks. Derive your own and hand a shared_ptr to the Trainer.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/optim/gradient_clip.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

class ClusterEnvironment;

/// Whether a backward pass ends an accumulation window: only then do ranks exchange gradients.
enum class GradSync { kNow, kLater };

/// How many ranks a node runs, and on how many nodes.
struct WorldShape {
  int devices = 1;  ///< ranks on this node
  int num_nodes = 1;
};

/// Tells `environment` the size of the world and this process's rank in it, where it does not know
/// them from outside.
LOCKSTEP_API void set_world_ranks(ClusterEnvironment& environment, const WorldShape& shape);

/// The Trainer calls, in this order:
///   setup_environment -> setup_fit or setup_evaluation -> { backward* -> clip_gradients ->
///   optimizer_step }* -> module_state -> teardown
/// Every function is Collective unless it says otherwise.
class LOCKSTEP_API Strategy {
 public:
  virtual ~Strategy();

  /// The registered name, such as "ddp". Not Collective.
  virtual std::string_view name() const = 0;

  /// Forms the group of ranks; blocks until all have arrived or the strategy's deadline has passed.
  /// @throws Timeout naming the ranks that are missing; ConfigError when the environment disagrees
  virtual void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) = 0;

  /// The group of all ranks; a world of one before setup_environment(). Not Collective.
  virtual const Communicator& communicator() const = 0;

  /// Prepares `module` for training (moves, shards, makes the ranks equal) and creates its
  /// optimizer. Keeps a reference to `module` until teardown().
  virtual std::unique_ptr<Optimizer> setup_fit(torch::nn::Module& module,
                                               const OptimizerFactory& factory) = 0;

  /// Prepares `module` for evaluation: every rank gets rank 0's weights.
  virtual void setup_evaluation(torch::nn::Module& module) = 0;

  /// Runs backward from `loss`. With kLater nothing is sent and gradients add up locally;
  /// after kNow the gradients are the mean over ranks of the accumulated ones.
  virtual void backward(const at::Tensor& loss, GradSync sync) = 0;

  /// Clips the gradients of `optimizer`'s parameters; gradients are those of the global batch.
  virtual void clip_gradients(Optimizer& optimizer, const GradientClip& clip);

  /// Updates the parameters.
  virtual void optimizer_step(Optimizer& optimizer) = 0;

  /// All parameters and buffers, full and unsharded, under their PyTorch names. Complete on rank 0;
  /// other ranks may get nothing. The tensors alias the module's where they can.
  virtual std::map<std::string, at::Tensor> module_state(torch::nn::Module& module);

  /// Releases engine and group. Not Collective: also called after a failure.
  virtual void teardown() = 0;

  /// Waits until all ranks are here.
  void barrier() const { communicator().barrier(); }
};

}  // namespace lockstep
