#include "strategy/ddp_strategy.h"

#include <lockstep/base/error.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/comm/init.h>
#include <lockstep/torch.h>

#include "strategy/named_parameters.h"

namespace lockstep {
namespace {

// c10d counts the passes of a window, too, when it learns the graph, and ranks would then drift apart.
[[noreturn]] void refuse_accumulation() {
  throw ConfigError("strategy", {.what = "static_graph cannot be combined with gradient accumulation",
                                 .expected = "static_graph false, or accumulate_grad_batches 1",
                                 .got = "both"});
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
                                     .reduction = options_.reduction});
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
  if (sync == GradSync::kLater && options_.static_graph) refuse_accumulation();
  if (sync == GradSync::kNow) engine_->prepare_backward(loss);
  loss.backward();
  if (sync == GradSync::kNow) engine_->check_backward_finished();
}

void DdpStrategy::optimizer_step(Optimizer& optimizer) {
  optimizer.step();
  engine_->after_step();
}

void DdpStrategy::teardown() { engine_.reset(); }

}  // namespace lockstep
