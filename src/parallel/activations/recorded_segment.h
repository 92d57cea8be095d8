// A part of a forward pass whose operators are recorded instead of its activations being saved: they can be
// run a second time, with the states of random generators that they had.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <lockstep/parallel/dispatch/tensor_mark.h>

#include "parallel/activations/replay.h"
#include "parallel/dispatch/backward_thread.h"
#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {

// The tensors that recorded operators use and return, by number.

/// A tensor among the arguments of a recorded operator.
struct TapedTensor {
  std::optional<std::size_t> value;  ///< none: the tensor is undefined
  bool requires_grad = false;        ///< as it was then
};

/// A tensor that an operator returned is an inner value, which is freed and computed again in the second run.
/// Any other tensor is an outer value, which is saved.
class TapedValues {
 public:
  /// First run: operator number `by` uses `tensor`.
  TapedTensor use(const at::Tensor& tensor, std::size_t by);
  /// First run: operator number `by` returns `tensor`. None for an outer value, which it was given.
  std::optional<std::size_t> define(const at::Tensor& tensor, std::size_t by);
  /// Whether the memory of `tensor` is that of an outer value, which stays alive anyway.
  bool keeps(const at::Tensor& tensor) const;
  /// Whether a second run can repeat a write to `tensor`: not to a parameter, nor to memory that several
  /// outer values share.
  bool can_write(const at::Tensor& tensor) const;
  /// First run: the operator is about to write to `tensor`; copies an outer value in that memory before.
  void keep_before_write(const at::Tensor& tensor);
  /// Whether a second run may be given `tensor` itself, of which no operator has written a copy.
  bool can_give_itself(const at::Tensor& tensor) const;
  /// Notes that a second run is given `tensor` itself, which may change between runs.
  void expect_changes(const TapedTensor& used, const at::Tensor& tensor);

  /// Second run: the tensor for `used`; called in the same order.
  at::Tensor get(const TapedTensor& used);
  void set(std::optional<std::size_t> value, const at::Tensor& tensor);
  /// Releases the value, if operator `by` was the last one to use it.
  void end_use(std::optional<std::size_t> value, std::size_t by);
  void forget() { again_.clear(); }

 private:
  struct Value {
    c10::weak_intrusive_ptr<c10::TensorImpl> identity;  // weak: keeps the address from being used again
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;  // weak for the same reason
    SavedTensor outer = {};                                           // the tensor, or a copy of what it was
    std::int64_t version = 0;                                         // of the tensor
    bool is_copied = false;
    bool is_fixed = true;
    bool requires_grad = false;  // of what an operator writes to
    std::size_t last_use = 0;
  };

  std::size_t add(const at::Tensor& tensor, std::size_t by);
  void add_outer(const at::Tensor& tensor, std::size_t number);
  std::span<const std::size_t> outers_in_memory_of(const at::Tensor& tensor) const;
  static void check_unchanged(const Value& value);
  void keep_copy(Value& value);
  at::Tensor get_outer(const Value& value) const;

  std::vector<Value> values_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> numbers_;
  std::unordered_map<const c10::StorageImpl*, std::vector<std::size_t>> outers_;
  std::unordered_set<const c10::StorageImpl*> made_;  // memory that operators gave
  std::vector<at::Tensor> again_;
};

/// Tensors, and values for them.
using RunningStatistics = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// Records which operators ran on which tensors, but neither their results nor what autograd would have saved
/// of them: the second run computes both again. It uses the random numbers, autocast and gradient mode of the
/// first run, and has no effect but the tensors for backward.
class OperatorTape {
 public:
  explicit OperatorTape(bool compares_bytes) : tensors_(compares_bytes) {}

  /// Whether a second run could repeat `call`; not collectives and writes to parameters.
  bool can_record(OperatorCall& call) const;

  /// Runs `call`, and records it if it has to be run again; results that are made from no tensor are stored
  /// instead.
  void record(OperatorCall& call, const std::function<void()>& run);
  /// Whether a recorded operator is running.
  bool is_recording() const { return is_recording_; }
  std::size_t operators() const { return entries_.size(); }

  /// First run: a tensor that the operator would save for backward.
  std::size_t leave_out(const at::Tensor& tensor) { return tensors_.leave_out(tensor); }
  std::size_t left_out() const { return tensors_.size(); }
  /// Whether `tensor` stays alive anyway, since it came from outside.
  bool keeps(const at::Tensor& tensor) const { return values_.keeps(tensor); }

  /// Tensor number `number`, computed by a second run of all operators, which computes the others, too. Each
  /// is released when it was taken.
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

/// While it is the thread's recorder, autograd saves no results of operators; backward runs the operators
/// again. The graph holds the segment until then. Recording ends at an operator that cannot be run again, at
/// one that fails, and when the graph is gone; later tensors are saved as usual.
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
