// Ddp: every rank holds the whole model, and gradients are averaged while backward runs.
#include "strategy/ddp_strategy.h"

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/deferred_init.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

#include "strategy/module_parameters.h"

namespace lockstep::detail {
namespace {

// Takes the gradients off the parameters while it lives, and adds them to those that have come by then: what
// was averaged is not averaged again.
class GradientWindow {
 public:
  /// `copies`: gradients lie in memory that the next ones will take.
  GradientWindow(std::span<torch::nn::Module* const> modules, bool copies) {
    for (auto* module : modules) {
      for (const auto& parameter : module->parameters()) {
        auto& gradient = parameter.mutable_grad();
        if (!gradient.defined()) continue;
        averages_.emplace_back(parameter, copies ? gradient.clone() : gradient);
        gradient.reset();
      }
    }
  }
  ~GradientWindow() {
    const torch::NoGradGuard no_grad;
    for (auto& [parameter, average] : averages_) {
      auto& gradient = parameter.mutable_grad();
      if (gradient.defined()) average.add_(gradient);
      gradient = std::move(average);
    }
  }
  GradientWindow(const GradientWindow&) = delete;
  GradientWindow& operator=(const GradientWindow&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> averages_;
};

}  // namespace
}  // namespace lockstep::detail

namespace lockstep {

void DdpStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  communicator_ = detail::join_ranks(options_, environment, shape);
}

void DdpStrategy::setup_module(const std::shared_ptr<torch::nn::Module>& module) {
  detail::require_placeable(*module, root_device(), communicator_.rank());
  engines_.forget_dropped();
  restore_sharded(*module);
  materialize_module(*module);
  detail::place_module(*module, root_device());
  engines_.set(module, std::make_shared<DdpEngine>(*module, communicator_, options_));
}

void DdpStrategy::setup_evaluation(torch::nn::Module& module) {
  detail::require_placeable(module, root_device(), communicator_.rank());
  detail::restore_engines_of(module);
  materialize_module(module);
  detail::place_module(module, root_device());
  DdpEngine::broadcast_module_states(module, communicator_);
}

void DdpStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                           const BackwardOptions& options) {
  std::optional<detail::GradientWindow> window;
  if (options_.reduce_every_micro_batch) window.emplace(synced, options_.gradient_as_bucket_view);
  DdpEngine::backward(loss, engines_.averaging(synced), options);
}

StateTree DdpStrategy::state() const {
  StateList modules;
  bool is_empty = true;
  for (const auto& replica : engines_.rows()) {
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
  auto& replicas = engines_.rows();
  if (modules.size() != replicas.size()) {
    throw CheckpointError("strategy", {.what = "the state of a strategy with another number of models",
                                       .expected = std::to_string(replicas.size()),
                                       .got = std::to_string(modules.size())});
  }
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (!modules[i].empty() && replicas[i].engine) replicas[i].engine->load_state(modules[i]);
  }
}

}  // namespace lockstep
