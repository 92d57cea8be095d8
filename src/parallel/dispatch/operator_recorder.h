// Following every operator that a thread calls, also on tensors without marks.
#pragma once

#include <functional>
#include <memory>

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <lockstep/parallel/dispatch/operator_call.h>

namespace lockstep::detail {

/// Sees the operators of a thread as the user calls them: not what they call inside, nor backward's.
class OperatorRecorder {
 public:
  virtual ~OperatorRecorder() = default;

  /// `call` is about to run; calls `run` once, after which the results are on the call.
  virtual void record(OperatorCall& call, const std::function<void()>& run) = 0;

  /// For a tensor that autograd is about to save where no ScopedSavedTensorHooks is open; null: as always.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_of_saved_tensor() = 0;
};

/// This thread's, or null.
const std::shared_ptr<OperatorRecorder>& operator_recorder();

/// From the next operator of this thread on; a backward of this thread ends it. Null: none.
void set_operator_recorder(std::shared_ptr<OperatorRecorder> recorder);

/// Has the dispatcher show us this thread's operators on any tensors, as long as it has a recorder or a
/// watcher.
void follow_operators();

}  // namespace lockstep::detail
