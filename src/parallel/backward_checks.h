// Checks of a backward pass: the leaves that it would reach, unused parameters, and what one is called that
// cannot be averaged.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <lockstep/parallel/ddp/ddp.h>

#include "comm/compat.h"
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

/// For the handler of `error`: throws what c10d's Reducer means by it, or `error` itself where that is not
/// known. `trained`: to name the parameters that c10d counts.
/// @throws CommError
[[noreturn]] void throw_named(const c10::Error& error, const std::vector<NamedTensor>& trained,
                              const Ddp& options, int rank);

/// @throws ConfigError: the loss depends on no parameter of the model
[[noreturn]] void refuse_loss_without_model(const std::vector<NamedTensor>& trained, int rank);

/// @throws ConfigError for a loss of which backward can make no gradient. `comm` may be null.
void require_gradient(const at::Tensor& loss, const Communicator* comm);

/// @throws ConfigError: create_graph in a pass that averages
[[noreturn]] void refuse_create_graph();

}  // namespace lockstep::detail
