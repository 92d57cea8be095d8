// What our autograd engine has for each thread: the backward passes and their observers, and tensors that are
// saved from forward to backward, in memory or in a store; and the layout of a tensor in its storage.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <lockstep/base/export.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>

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

struct LOCKSTEP_API TensorPlace {
  TensorPlace() = default;
  explicit TensorPlace(const at::Tensor& tensor);
  /// A tensor with this layout in `memory`.
  at::Tensor in(const c10::Storage& memory) const;

  std::vector<std::int64_t> sizes = {}, strides = {};
  std::int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
};

/// A copy of a storage's bytes.
class SavedMemory {
 public:
  virtual ~SavedMemory() = default;
  /// The bytes, for as long as the storage lives; not to be written to.
  virtual c10::Storage storage() = 0;
};

/// A tensor, or what it takes to make one of the same content.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  SavedTensor(TensorPlace place, std::shared_ptr<SavedMemory> copy)
      : place_(std::move(place)), copy_(std::move(copy)) {}

  bool is_defined() const { return is_copy() || tensor_.defined(); }
  /// Whether a copy is stored instead of the tensor itself.
  bool is_copy() const { return copy_ != nullptr; }
  /// The tensor itself, or a copy without a connection to autograd.
  at::Tensor get() const { return is_copy() ? place_.in(copy_->storage()) : tensor_; }

 private:
  at::Tensor tensor_;
  TensorPlace place_;
  std::shared_ptr<SavedMemory> copy_;
};

class SavedTensorStore {
 public:
  virtual ~SavedTensorStore() = default;
  /// Stores `tensor`. May block. @throws IoError
  virtual SavedTensor keep(const at::Tensor& tensor) = 0;
};

/// The store of this thread, or null.
const std::shared_ptr<SavedTensorStore>& saved_tensor_store();

/// Sets the store for tensors that are saved from now on; a backward of this thread resets it. Null: tensors
/// stay in memory.
void set_saved_tensor_store(const std::shared_ptr<SavedTensorStore>& store);

/// Saves `tensor` in the store of this thread.
SavedTensor keep(const at::Tensor& tensor);

}  // namespace lockstep::detail
