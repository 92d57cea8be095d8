#include "strategy/ddp_strategy.h"

#include <algorithm>

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
  if (found == replicas_.end()) refuse_stranger("module");
  return *found;
}

DdpStrategy::Replica& DdpStrategy::replica_of(const Optimizer& optimizer) {
  const auto found = std::ranges::find_if(replicas_, [&](const Replica& replica) {
    return std::ranges::count(replica.optimizers, &optimizer) > 0;
  });
  if (found == replicas_.end()) refuse_stranger("optimizer");
  return *found;
}

void DdpStrategy::setup_module(const std::shared_ptr<torch::nn::Module>& module) {
  std::erase_if(replicas_, [](const Replica& replica) { return replica.module.expired(); });
  replicas_.push_back({.address = module.get(),
                       .module = module,
                       .engine = std::make_unique<DdpEngine>(*module, communicator_, options_)});
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

void DdpStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                           const BackwardOptions& options) {
  const auto run = [&] { loss.backward(options.gradient, options.retain_graph, options.create_graph); };
  if (synced.empty()) return run();
  try {
    for (const auto* module : synced) replica_of(*module).engine->prepare_backward(loss);
    run();
    for (const auto* module : synced) replica_of(*module).engine->check_backward_finished();
  } catch (...) {
    for (auto& replica : replicas_) replica.engine->reset();
    throw;
  }
}

void DdpStrategy::optimizer_step(Optimizer& optimizer) {
  auto& replica = replica_of(optimizer);
  optimizer.step();
  replica.engine->after_step();
}

void DdpStrategy::teardown() { replicas_.clear(); }

}  // namespace lockstep
