#include <lockstep/strategy/strategy.h>

#include <lockstep/checkpoint/weights.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/state/module_state.h>
#include <lockstep/torch.h>

#include "strategy/module_parameters.h"

namespace lockstep {

Strategy::~Strategy() = default;

void set_world_ranks(ClusterEnvironment& environment, const WorldShape& shape) {
  environment.set_world_size(shape.devices * shape.num_nodes);
  environment.set_global_rank(environment.node_rank() * shape.devices + environment.local_rank());
}

std::unique_ptr<Optimizer> Strategy::setup_optimizer(torch::nn::Module& module,
                                                     const OptimizerFactory& factory) {
  return factory.create(named_parameters(module));
}

std::vector<NamedParameter> Strategy::accumulating_parameters(torch::nn::Module& module) {
  return named_parameters(module);
}

bool Strategy::shares_forward(const torch::nn::Module&) const { return false; }

std::shared_ptr<void> Strategy::hold_whole(torch::nn::Module&) { return nullptr; }

void Strategy::release_module(const torch::nn::Module&) {}

double Strategy::optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) {
  return optimizer.step_with(closure);
}

bool Strategy::unscale_in_step(Optimizer&, double) { return false; }

void Strategy::skip_optimizer_step(Optimizer&) {}

void Strategy::check_replicas(torch::nn::Module&) {}

void Strategy::load_state(const StateTree&) {}

double Strategy::clip_gradients(Optimizer& optimizer, const GradientClip& clip) {
  return lockstep::clip_gradients_lazily(Strategy::trained_parameters(optimizer), clip);
}

Scalar Strategy::clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip) {
  return clip_gradients(optimizer, clip);
}

NamedTensors Strategy::module_state(torch::nn::Module& module) { return named_tensors(module); }

StateTree Strategy::saved_state(torch::nn::Module& module) {
  StateTree tree;
  for (const auto& [name, tensor] : module_state(module)) tree.set(name, tensor);
  return tree;
}

StateTree Strategy::saved_shards(torch::nn::Module& module) { return saved_state(module); }

StateTree Strategy::wanted_state(torch::nn::Module&) { return {}; }

IncompatibleKeys Strategy::load_module(torch::nn::Module& module, const StateTree& state, bool strict) {
  return load_module_state(module, state, strict);
}

StateTree Strategy::wanted_optimizer_state(Optimizer&) { return {}; }

void Strategy::set_precision(Precision&) {}

double Strategy::grad_norm(Optimizer& optimizer, double norm_type) {
  return lockstep::grad_norm(Strategy::trained_parameters(optimizer), norm_type);
}

StateTree Strategy::optimizer_state(Optimizer& optimizer) { return state_of(optimizer); }

void Strategy::load_optimizer(Optimizer& optimizer, const StateTree& state) {
  lockstep::load_state(optimizer, state);
}

std::vector<at::Tensor> Strategy::trained_parameters(const Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : optimizer.parameters()) parameters.push_back(parameter.tensor);
  return parameters;
}

std::uint64_t Strategy::bytes_sent() const { return communicator().bytes_sent(); }

std::map<std::string, int> Strategy::mesh() const { return {{"replicate", communicator().size()}}; }

}  // namespace lockstep
