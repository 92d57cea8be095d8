#include "strategy/single_device_strategy.h"

#include <lockstep/parallel/deferred_init.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

#include "parallel/sharded/restore_engines.h"
#include "strategy/on_cpu.h"

namespace lockstep {

void SingleDeviceStrategy::setup_environment(ClusterEnvironment&, const WorldShape&) {}

void SingleDeviceStrategy::setup_module(const std::shared_ptr<torch::nn::Module>& module) {
  detail::require_on_cpu(*module, communicator_.rank());
  restore_sharded(*module);
  materialize_module(*module);
}

void SingleDeviceStrategy::setup_evaluation(torch::nn::Module& module) {
  detail::require_on_cpu(module, communicator_.rank());
  detail::restore_engines_of(module);
  materialize_module(module);
}

void SingleDeviceStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const>,
                                    const BackwardOptions& options) {
  loss.backward(options.gradient, options.retain_graph, options.create_graph);
}

void SingleDeviceStrategy::optimizer_step(Optimizer& optimizer) { optimizer.step(); }

}  // namespace lockstep
