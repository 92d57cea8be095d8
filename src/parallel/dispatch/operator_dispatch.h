// The interception of operators: what their schemas say of arguments, the dispatch key of marked tensors, the
// marks of each storage, and the watchers and recorder of a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <lockstep/parallel/dispatch/tensor_mark.h>

namespace c10 {
class OperatorHandle;
}

namespace lockstep::detail {

enum class OperatorKind {
  kUse,            ///< reads or writes elements
  kView,           ///< only makes tensors that share the memory of an argument
  kCompositeView,  ///< the same, but calls other operators, which may copy
  kBackward        ///< runs the autograd engine
};

struct OperatorInfo {
  OperatorKind kind = OperatorKind::kUse;
  std::uint64_t written = 0;    ///< bit i: argument i, of the first 64, is written to
  bool is_composite = false;    ///< does nothing itself but call other operators, which can be followed
  bool is_random = false;       ///< draws random numbers
  bool is_in_place = false;     ///< changes one argument, which it returns, and nothing else
  bool is_elementwise = false;  ///< makes one new tensor, each element of those in the same place
};

/// Cached per thread and operator.
const OperatorInfo& operator_info(const c10::OperatorHandle& op);

/// The uses of one operator; more than a few allocate.
using TensorUses = c10::SmallVector<TensorUse, 8>;

/// Marks by storage, since a view of a marked tensor is another tensor on the same storage. Thread-safe.
class MarkTable {
 public:
  void add(const c10::StorageImpl* storage, const TensorMark* mark);

  /// Returns whether no mark of the same tensor is left.
  bool remove(const c10::StorageImpl* storage, const TensorMark* mark);

  /// Appends the marks on `storage` to `uses`.
  void find(const c10::StorageImpl* storage, bool is_written, TensorUses& uses) const;

 private:
  mutable std::shared_mutex mutex_;  // guards all below
  std::unordered_map<const c10::StorageImpl*, c10::SmallVector<const TensorMark*, 1>> marks_;
};

/// The process's table. Never destroyed: operators may run until the very end.
MarkTable& mark_table();

/// Sees the operators of its thread as the user calls them, from its making to its end: not what they call
/// inside, nor those of a backward that begins meanwhile. The watchers of a thread end in the reverse order.
class OperatorWatcher {
 public:
  OperatorWatcher();
  virtual ~OperatorWatcher();
  OperatorWatcher(const OperatorWatcher&) = delete;
  OperatorWatcher& operator=(const OperatorWatcher&) = delete;

  virtual void before(OperatorCall& call) = 0;
  /// The results are on the call.
  virtual void after(OperatorCall& call) = 0;

  /// The number of backward passes around it when it was created.
  int depth() const { return depth_; }

 private:
  int depth_;
};

/// Whether this thread has any watcher.
bool has_operator_watchers();

/// For all of this thread.
void tell_before(OperatorCall& call);
void tell_after(OperatorCall& call);

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

/// Makes the dispatcher call our fallback for all operators of this thread, as long as it has a recorder or a
/// watcher.
void follow_operators();

/// Gives `tensor` other keys; storage, shape, gradient and hooks stay.
void set_keys(const at::Tensor& tensor, c10::DispatchKeySet keys);

/// The key, chosen and given our fallback by the first call: the first of those above autograd and autocast
/// that nobody uses. Thread-safe.
/// @throws ConfigError if all are taken
c10::DispatchKey use_key();

/// What looks at operators before all others do: tensors that are deferred.
struct DeferralHooks {
  /// False where no operator needs to be looked at for deferral.
  bool (*may_defer)();
  /// Defers the call and replaces its arguments on the stack by its result. Returns false, with the stack
  /// unchanged, where the call has to run now.
  bool (*defer_operator)(const c10::OperatorHandle& op, const OperatorInfo& info,
                         std::vector<c10::IValue>& stack);
  /// Materializes the tensors among `arguments`.
  void (*materialize_arguments)(std::span<const c10::IValue> arguments);
};

/// Called once, while the library is loaded.
void set_deferral_hooks(const DeferralHooks& hooks);

}  // namespace lockstep::detail
