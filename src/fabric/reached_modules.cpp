#include "fabric/reached_modules.h"

#include <algorithm>
#include <unordered_set>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

// Calls use(variable) for every leaf below `root`, until it returns false.
template <class Use>
void for_each_leaf(torch::autograd::Node* root, Use&& use) {
  std::vector<torch::autograd::Node*> open{root};
  std::unordered_set<const torch::autograd::Node*> seen{root};
  while (!open.empty()) {
    auto* const node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      if (!use(leaf->variable)) return;
    }
    for (const auto& edge : node->next_edges()) {
      if (edge.function && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
    }
  }
}

}  // namespace

std::vector<FabricModule*> reached_modules(const at::Tensor& loss, const FabricState& state) {
  std::unordered_set<const FabricModule*> found;
  for_each_leaf(torch::autograd::impl::gradient_edge(loss).function.get(), [&](const at::Tensor& leaf) {
    const auto owner = state.owners.find(leaf.unsafeGetTensorImpl());
    if (owner != state.owners.end()) found.insert(owner->second);
    return found.size() < state.modules.size();
  });
  std::vector<FabricModule*> reached;
  for (const auto& known : state.modules) {
    if (found.contains(known.get())) reached.push_back(known.get());
  }
  return reached;
}

void GradientWatch::add(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) {
    const auto& gradient = parameter.grad();
    seen_.push_back({.parameter = parameter,
                     .gradient = gradient.defined() ? gradient.unsafeGetTensorImpl() : nullptr,
                     .version = gradient.defined() ? gradient._version() : 0});
  }
}

void GradientWatch::check() const {
  for (const auto& [parameter, before, version] : seen_) {
    const auto& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.unsafeGetTensorImpl() == before && gradient._version() == version) continue;
    throw ConfigError("fabric", {.what = "backward() gave gradients to a model that the graph does not show",
                                 .expected = "a graph that leads to all models that the loss trains",
                                 .got = "a function that runs a backward of its own, such as a checkpoint",
                                 .hint = "name the models: fabric.backward(loss, model, other)"});
  }
}

}  // namespace lockstep::detail
