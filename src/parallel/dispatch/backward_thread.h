// The backward passes of this thread: whether one is running, and their observers.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <lockstep/parallel/dispatch/backward_observer.h>

namespace lockstep::detail {

// How our autograd engine takes part in saving tensors.

/// Hooks for the tensor that autograd is about to save in this thread, or null if no scope is open and no
/// recorder wants it.
std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_of_next_saved_tensor();

/// Whether this thread is inside of a ScopedSavedTensorHooks.
bool has_saved_tensor_scope();

/// Whether this thread runs a node of a backward pass.
inline bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

/// The backward passes of one thread: their observers, and how deeply they are nested.
struct BackwardThread {
  std::vector<BackwardObserver*> observers;
  int depth = 0;
};

/// This thread's; shared with the observers' scopes, which may outlive it.
const std::shared_ptr<BackwardThread>& backward_thread();

}  // namespace lockstep::detail
