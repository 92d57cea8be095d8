// How a backward pass is run.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// What is handed on to at::Tensor::backward.
struct BackwardOptions {
  at::Tensor gradient = {};   ///< of a loss that is not a scalar, in its shape
  bool retain_graph = false;  ///< keeps the graph for another backward
  bool create_graph = false;  ///< builds a graph of the gradients; not where they are averaged
};

}  // namespace lockstep
