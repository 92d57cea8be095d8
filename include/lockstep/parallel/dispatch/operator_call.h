// One call of an operator, on its way from the user to LibTorch's kernels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace c10 {
struct IValue;
class OperatorHandle;
}  // namespace c10

namespace lockstep {

/// An operator and its arguments, later its results. Valid during the handler's call only.
class LOCKSTEP_API OperatorCall {
 public:
  /// `stack` ends with the arguments, as LibTorch's boxed kernels get them.
  OperatorCall(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) : op_(&op), stack_(&stack) {}

  /// The operator; a cheap value to compare and to keep.
  const c10::OperatorHandle& op() const { return *op_; }

  /// Its name with its namespace and without its overload: "aten::batch_norm".
  const std::string& name() const;

  /// Its arguments in the order of its schema, before it ran. May be replaced by others of the same types.
  std::span<c10::IValue> arguments();

  /// Runs it on the arguments; arguments() are gone then.
  void run();

  /// Ends the call with other results, as many and of the types that the schema says.
  void set_results(std::vector<c10::IValue> results);

  /// Whether run() or set_results() was called.
  bool is_done() const { return is_done_; }

  /// The results in the order of the schema, once is_done(). May be replaced by others of the same types.
  std::span<c10::IValue> results();

 private:
  const c10::OperatorHandle* op_;
  std::vector<c10::IValue>* stack_;
  bool is_done_ = false;
};

}  // namespace lockstep
