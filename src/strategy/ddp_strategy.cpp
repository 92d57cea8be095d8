#include "strategy/ddp_strategy.h"

#include <algorithm>
#include <ranges>

#include <lockstep/base/error.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/comm/init.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse_stranger(const char* kind) {
  throw ConfigError("strategy", {.what = std::string("a ") + kind + " that this strategy has not set up",
                                 .expected = std::string("one that it has, since its last teardown"),
                                 .got = std::string("another ") + kind});
}

}  // namespace

void DdpStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  environment.validate_settings(shape.devices, shape.num_nodes);
  set_world_ranks(environment, shape);
  communicator_ = init_communicator({.backend = options_.process_group_backend,
                                     .main_address = environment.main_address(),
                                     .main_port = environment.main_port(),
                                     .rank = environment.global_rank(),
                                     .world_size = environment.world_size(),
                                     .timeout = options_.timeout,
                                     .reduction = options_.reduction,
                                     .check_collectives = options_.check_collectives});
}

DdpStrategy::Replica& DdpStrategy::replica_of(const torch::nn::Module& module) {
  const auto found = std::ranges::find(replicas_, &module, &Replica::address);
  if (found == replicas_.end() || !found->engine || found->module.expired()) refuse_stranger("module");
  return *found;
}

DdpStrategy::Replica& DdpStrategy::replica_of(const Optimizer& optimizer) {
  const auto found = std::ranges::find_if(replicas_, [&](const Replica& replica) {
    return std::ranges::count(replica.optimizers, &optimizer) > 0;
  });
  if (found == replicas_.end()) refuse_stranger("optimizer");
  return *found;
}

void DdpStrategy::forget_dropped_modules() {
  std::erase_if(replicas_, [](const Replica& replica) { return replica.module.expired(); });
}

void DdpStrategy::setup_module(const std::shared_ptr<torch::nn::Module>& module) {
  forget_dropped_modules();
  auto engine = std::make_unique<DdpEngine>(*module, communicator_, options_);
  const auto known = std::ranges::find(replicas_, module.get(), &Replica::address);
  if (known != replicas_.end()) {
    known->engine = std::move(engine);
  } else {
    replicas_.push_back({.address = module.get(), .module = module, .engine = std::move(engine)});
  }
}

void DdpStrategy::release_module(const torch::nn::Module& module) {
  auto& replica = replica_of(module);
  replica.engine = nullptr;
  replica.awaits_step = false;
}

std::unique_ptr<Optimizer> DdpStrategy::setup_optimizer(torch::nn::Module& module,
                                                        const OptimizerFactory& factory) {
  auto& replica = replica_of(module);
  auto optimizer = Strategy::setup_optimizer(module, factory);
  // An optimizer that is gone may have had the same address.
  for (auto& other : replicas_) std::erase(other.optimizers, optimizer.get());
  replica.optimizers.push_back(optimizer.get());
  return optimizer;
}

void DdpStrategy::setup_evaluation(torch::nn::Module& module) {
  DdpEngine::broadcast_module_states(module, communicator_);
}

// Gradients of the last models usually come first.
void DdpStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                           const BackwardOptions& options) {
  std::vector<DdpEngine*> engines;
  for (const auto* module : synced | std::views::reverse) {
    auto& replica = replica_of(*module);
    replica.awaits_step = true;
    engines.push_back(replica.engine.get());
  }
  DdpEngine::backward(loss, engines, options);
}

// Of several optimizers of a module the first that steps makes its buffers equal.
void DdpStrategy::end_step(Replica& replica) {
  if (std::exchange(replica.awaits_step, false)) replica.engine->after_step();
}

void DdpStrategy::optimizer_step(Optimizer& optimizer) {
  auto& replica = replica_of(optimizer);
  optimizer.step();
  end_step(replica);
}

double DdpStrategy::optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) {
  auto& replica = replica_of(optimizer);
  const double loss = optimizer.step_with(closure);
  end_step(replica);
  return loss;
}

void DdpStrategy::skip_optimizer_step(Optimizer& optimizer) { end_step(replica_of(optimizer)); }

StateTree DdpStrategy::state() const {
  StateList modules;
  bool is_empty = true;
  for (const auto& replica : replicas_) {
    auto state = replica.engine ? replica.engine->state() : StateTree();
    is_empty = is_empty && state.empty();
    modules.push_back(std::move(state));
  }
  StateTree state;
  if (!is_empty) state.set("modules", std::move(modules));
  return state;
}

void DdpStrategy::load_state(const StateTree& state) {
  if (state.empty()) return;
  const auto modules = state.get_all<StateTree>("modules");
  if (modules.size() != replicas_.size()) {
    throw CheckpointError("strategy", {.what = "the state of a strategy with another number of models",
                                       .expected = std::to_string(replicas_.size()),
                                       .got = std::to_string(modules.size())});
  }
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (!modules[i].empty() && replicas_[i].engine) replicas_[i].engine->load_state(modules[i]);
  }
}

void DdpStrategy::teardown() { replicas_.clear(); }

}  // namespace lockstep
