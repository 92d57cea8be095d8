#include "strategy/single_device_strategy.h"

#include <lockstep/parallel/deferred_init.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

#include "strategy/module_parameters.h"

namespace lockstep {

void SingleDeviceStrategy::setup_environment(ClusterEnvironment&, const WorldShape&) {}

void SingleDeviceStrategy::setup_module(const std::shared_ptr<torch::nn::Module>& module) {
  detail::require_placeable(*module, root_device(), communicator_.rank());
  restore_sharded(*module);
  materialize_module(*module);
  detail::place_module(*module, root_device());
}

void SingleDeviceStrategy::setup_evaluation(torch::nn::Module& module) {
  detail::require_placeable(module, root_device(), communicator_.rank());
  detail::restore_engines_of(module);
  materialize_module(module);
  detail::place_module(module, root_device());
}

void SingleDeviceStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const>,
                                    const BackwardOptions& options) {
  loss.backward(options.gradient, options.retain_graph, options.create_graph);
}

Scalar SingleDeviceStrategy::clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip) {
  return lockstep::clip_gradients_lazily(trained_parameters(optimizer), clip);
}

void SingleDeviceStrategy::optimizer_step(Optimizer& optimizer) { optimizer.step(); }

}  // namespace lockstep
