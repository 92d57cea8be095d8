// Checks of a backward pass: the leaves that it would reach, unused parameters, and what is said of one that
// cannot be averaged.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <lockstep/parallel/ddp/ddp.h>

#include "parallel/module_states.h"

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

/// @throws CommError: backward gave no gradient to the parameters `names`; `is_static`: in a static graph
[[noreturn]] void refuse_missing(const std::string& names, bool is_static, int rank);

/// @throws CommError: the gradient of parameter `name` came again after it had counted as done
[[noreturn]] void refuse_repeated_gradient(const std::string& name, int rank);

/// @throws CommError: a static graph gave parameter `name` a gradient too many
[[noreturn]] void refuse_changed_graph(const std::string& name, int rank);

/// @throws ConfigError: the gradient of parameter `name` is sparse
[[noreturn]] void refuse_sparse_gradient(const std::string& name);

/// @throws ConfigError: the loss depends on no parameter of the model
[[noreturn]] void refuse_loss_without_model(const std::vector<NamedTensor>& trained, int rank);

/// @throws ConfigError for a loss of which backward can make no gradient. `comm` may be null.
void require_gradient(const at::Tensor& loss, const Communicator* comm);

/// @throws ConfigError: create_graph in a pass that averages
[[noreturn]] void refuse_create_graph();

}  // namespace lockstep::detail
