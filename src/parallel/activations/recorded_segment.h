// A part of a forward pass that is recorded instead of kept.
#pragma once

#include <atomic>
#include <memory>

#include "parallel/activations/operator_tape.h"
#include "parallel/dispatch/operator_recorder.h"

namespace lockstep::detail {

/// While it is the thread's recorder, autograd keeps nothing of what operators give; backward runs them once
/// more. The graph holds it until then. It ends as the recorder by itself at an operator that cannot be run
/// again, one that fails, and once the graph is gone; what follows is then kept as always.
class RecordedSegment final : public OperatorRecorder, public std::enable_shared_from_this<RecordedSegment> {
 public:
  explicit RecordedSegment(bool compares_bytes) : tape_(compares_bytes) {}

  void record(OperatorCall& call, const std::function<void()>& run) override;
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_of_saved_tensor() override;

 private:
  class SavedByNumber;

  bool is_wanted() const;

  OperatorTape tape_;
  std::atomic<std::int64_t> saved_{0};  // tensors that the graph holds by number
};

}  // namespace lockstep::detail
