// Whether this thread runs a node of a backward pass.
#pragma once

#include <torch/csrc/autograd/graph_task.h>

namespace lockstep::detail {

inline bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace lockstep::detail
