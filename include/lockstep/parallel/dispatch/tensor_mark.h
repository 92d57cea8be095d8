// Marks on tensors, whose handlers are called when an operator uses the tensor, without wrappers around
// modules or functions.
//
// A marked tensor carries a dispatch key above autograd and autocast that LibTorch leaves free. The
// dispatcher sends every operator that gets such a tensor to us first. Views carry the key of what they view
// and gradients do not, so that a weight saved for backward is noticed there, too. Operators on other
// tensors never come here and cost what they always did.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

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

class TensorMark;

/// A marked tensor, or a view of it, among the arguments of an operator.
struct TensorUse {
  const TensorMark* mark;  ///< null: the tensor has none
  bool is_written;         ///< the operator writes to it: in place, or as an output
};

/// What is done when operators use marked tensors. Called in the thread that runs the operator, which for
/// backward on an accelerator is one of the engine's. Operators that a handler itself calls are not
/// reported; on floating-point tensors that require gradients they are differentiable as always.
class LOCKSTEP_API UseHandler {
 public:
  virtual ~UseHandler() = default;

  /// First of all: an operator is about to use tensors of this handler. For what must be in place before any
  /// handler changes arguments.
  virtual void announce(std::span<const TensorUse> uses);

  /// Before an operator runs, once per operator whose arguments hold tensors of this handler: those are
  /// `uses`, one entry per argument. An operator that calls others inside (linear, batch_norm) is one
  /// operator. One that makes a view uses nothing; one that may copy instead (contiguous, to, reshape)
  /// shows when it copies. May change arguments. An exception comes out of the operator.
  virtual void before_use(OperatorCall& call, std::span<const TensorUse> uses) = 0;

  /// After all handlers' before_use(). May run the operator itself, to do something after it
  /// (`call.run()`), or give other results in its place (`call.set_results()`); does nothing to let it run.
  /// Not asked once another handler has done either.
  virtual void replace(OperatorCall& call, std::span<const TensorUse> uses);
};

/// Marks `tensor` for `handler` as long as this object lives; it and the handler must live as long. The
/// tensor stays the same object with the same storage, gradient and hooks. It may be marked several times.
/// Marked tensors that share a storage are taken to be used together. Mark before the forward pass:
/// views made before do not carry the key.
class LOCKSTEP_API TensorMark {
 public:
  /// `tag` is the handler's own, such as the number of the unit that the tensor belongs to.
  /// @throws ConfigError if the tensor is undefined or has no storage, or all keys are taken
  TensorMark(const at::Tensor& tensor, UseHandler& handler, std::size_t tag = 0);
  ~TensorMark();
  TensorMark(const TensorMark&) = delete;
  TensorMark& operator=(const TensorMark&) = delete;

  /// The tensor that is marked.
  const at::Tensor& tensor() const { return tensor_; }
  /// Whom its use is told.
  UseHandler& handler() const { return *handler_; }
  /// What the handler knows it by.
  std::size_t tag() const { return tag_; }

  /// Whether uses are still noticed. Converting a module (`module->to(dtype)`) gives its tensors other
  /// storages without the key; the mark must then be made anew.
  bool is_intact() const;

 private:
  at::Tensor tensor_;
  UseHandler* handler_;
  std::size_t tag_;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;  // weak: keeps the address from being used again
};

}  // namespace lockstep
