#include "strategy/xla_strategy.h"

#include <lockstep/parallel/deferred_init.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

#include "parallel/backward_checks.h"
#include "strategy/module_parameters.h"

namespace lockstep {

void SingleXlaStrategy::optimizer_step(Optimizer& optimizer) {
  SingleDeviceStrategy::optimizer_step(optimizer);
  detail::end_xla_step(root_device());
}

double SingleXlaStrategy::optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) {
  const double loss = SingleDeviceStrategy::optimizer_step_with(optimizer, closure);
  detail::end_xla_step(root_device());
  return loss;
}

void XlaStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  communicator_ = detail::join_ranks(options_, environment, shape);
  if (options_.reduce_in_program) in_program_ = detail::ProgramCollectives::make(communicator_);
}

void XlaStrategy::setup_module(const std::shared_ptr<torch::nn::Module>& module) {
  detail::require_placeable(*module, root_device(), communicator_.rank());
  engines_.forget_dropped();
  restore_sharded(*module);
  materialize_module(*module);
  if (options_.sync_module_states) detail::XlaEngine::make_equal(*module, communicator_);
  detail::place_module(*module, root_device());
  engines_.set(module, std::make_shared<detail::XlaEngine>(*module, communicator_, options_, in_program_));
}

void XlaStrategy::setup_evaluation(torch::nn::Module& module) {
  detail::require_placeable(module, root_device(), communicator_.rank());
  detail::restore_engines_of(module);
  materialize_module(module);
  detail::XlaEngine::make_equal(module, communicator_);
  detail::place_module(module, root_device());
}

void XlaStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                           const BackwardOptions& options) {
  detail::require_gradient(loss, &communicator_);
  const auto averaging = engines_.averaging(synced);
  if (!averaging.empty() && options.create_graph) detail::refuse_create_graph();
  for (auto* const engine : averaging) engine->begin_backward();
  loss.backward(options.gradient, options.retain_graph, options.create_graph);
  for (auto* const engine : averaging) engine->average_gradients();
}

void XlaStrategy::end_step(Engines::Row& row) {
  ReplicatedStrategy::end_step(row);
  detail::end_xla_step(root_device());
}

std::uint64_t XlaStrategy::bytes_sent() const {
  return communicator_.bytes_sent() + (in_program_ ? in_program_->bytes_sent() : 0);
}

}  // namespace lockstep
