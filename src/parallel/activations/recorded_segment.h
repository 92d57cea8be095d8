// A part of a forward pass that is recorded instead of kept: a run of operators that can be done a second
// time, with the states of random generators that they had.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <lockstep/parallel/dispatch/operator_call.h>

#include "parallel/activations/replay.h"
#include "parallel/activations/taped_values.h"
#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {

/// Tensors, and values for them.
using RunningStatistics = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// Keeps which operators ran on what, and none of what they gave or of what autograd would have saved of
/// it: the second run makes both again. It takes random numbers, autocast and gradient mode from the first
/// one and leaves behind no trace but the tensors for backward.
class OperatorTape {
 public:
  explicit OperatorTape(bool compares_bytes) : tensors_(compares_bytes) {}

  /// Whether a second run could follow it. Not so collectives and writes to parameters.
  bool can_record(OperatorCall& call) const;

  /// Runs `call`, and remembers how if it has to be run again: what is made from no tensor is kept instead.
  void record(OperatorCall& call, const std::function<void()>& run);
  /// Whether an operator that is remembered is running.
  bool is_recording() const { return is_recording_; }
  std::size_t operators() const { return entries_.size(); }

  /// First run: a tensor that the operator would save for backward.
  std::size_t leave_out(const at::Tensor& tensor) { return tensors_.leave_out(tensor); }
  std::size_t left_out() const { return tensors_.size(); }
  /// Whether it is there anyway, since it came from outside.
  bool keeps(const at::Tensor& tensor) const { return values_.keeps(tensor); }

  /// That tensor, by a second run of all operators, which gives the others, too. Each goes once it was taken.
  /// @throws Error if a second run gives others, or what was given to the block has changed
  at::Tensor take(std::size_t number);

 private:
  struct Entry {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments = {};  // without their tensors
    std::vector<TapedTensor> used = {};       // those
    std::vector<std::optional<std::size_t>> results = {};
    RunningStatistics statistics = {};
    at::Generator generator = {};
    GeneratorState generator_state = {};
    AutocastState autocast = {};
    bool has_gradients = true;
    std::size_t first_left_out = 0, left_out = 0;
  };

  Entry describe(OperatorCall& call);
  void run_again();
  void run_again(const Entry& entry, std::size_t number);
  std::vector<c10::IValue> arguments_of(const Entry& entry);

  std::vector<Entry> entries_;
  std::size_t needed_ = 0;  // entries up to the last that left something out
  TapedValues values_;
  LeftOutTensors tensors_;
  bool is_recording_ = false;
};

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
