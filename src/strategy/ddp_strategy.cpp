#include "strategy/ddp_strategy.h"

#include <lockstep/base/env.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/comm/init.h>
#include <lockstep/torch.h>

#include "strategy/named_parameters.h"

namespace lockstep {
namespace {

// The socket that our own launcher listens on for rank 0, so that nobody can take its port. It can be
// taken over once, and is no business of programs that this rank may start.
std::optional<int> take_listen_fd() {
  if (!env::get("LOCKSTEP_LISTEN_FD")) return std::nullopt;
  const auto fd = static_cast<int>(env::require_int("LOCKSTEP_LISTEN_FD"));
  env::unset("LOCKSTEP_LISTEN_FD");
  return fd;
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
                                     .listen_fd = take_listen_fd()});
}

std::unique_ptr<Optimizer> DdpStrategy::setup_fit(torch::nn::Module& module,
                                                  const OptimizerFactory& factory) {
  engine_.reset();
  auto optimizer = factory.create(named_parameters(module));
  engine_ = std::make_unique<DdpEngine>(module, communicator_, options_);
  return optimizer;
}

void DdpStrategy::setup_evaluation(torch::nn::Module& module) {
  engine_.reset();
  DdpEngine::broadcast_module_states(module, communicator_);
}

void DdpStrategy::backward(const at::Tensor& loss, GradSync sync) {
  if (sync == GradSync::kNow) return engine_->backward(loss);
  loss.backward();
}

void DdpStrategy::optimizer_step(Optimizer& optimizer) {
  optimizer.step();
  engine_->after_step();
}

void DdpStrategy::teardown() { engine_.reset(); }

}  // namespace lockstep
