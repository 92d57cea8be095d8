// The leaves that a backward would reach.
#pragma once

#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace lockstep::detail {

/// Calls use(variable) for every leaf below `loss`, until it returns false. None for a loss without a graph.
template <class Use>
void for_each_leaf(const at::Tensor& loss, Use&& use) {
  if (!loss.defined() || !loss.requires_grad()) return;
  std::vector<torch::autograd::Node*> open{torch::autograd::impl::gradient_edge(loss).function.get()};
  std::unordered_set<const torch::autograd::Node*> seen{open.front()};
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

}  // namespace lockstep::detail
