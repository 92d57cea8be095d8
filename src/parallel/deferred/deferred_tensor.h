// Tensors whose storage holds a history in place of memory.
#pragma once

#include <memory>

#include <lockstep/parallel/deferred_init.h>

#include "parallel/deferred/tensor_history.h"

namespace lockstep::detail {

// Operators on deferred tensors: those that can wait are taped, the others get what they need.

/// Whether this thread builds within DeferredInit.
bool& is_deferring();

/// While it lives, this thread's new tensors get their memory at once.
class MemoryAtOnce {
 public:
  MemoryAtOnce() : was_deferring_(is_deferring()) { is_deferring() = false; }
  ~MemoryAtOnce() { is_deferring() = was_deferring_; }
  MemoryAtOnce(const MemoryAtOnce&) = delete;
  MemoryAtOnce& operator=(const MemoryAtOnce&) = delete;

 private:
  bool was_deferring_;
};

/// False where no operator needs to be looked at for deferral.
bool may_defer();

/// Whether any tensor of the process is deferred.
bool any_deferred();

/// That of the storage of `tensor`; null if it is not deferred.
std::shared_ptr<TensorHistory> history_of(const at::Tensor& tensor);

/// A deferred tensor on the CPU that looks like `meta`, a dense tensor on the meta device. Operators that get
/// it come to our fallback.
at::Tensor make_deferred(const at::Tensor& meta, std::shared_ptr<TensorHistory> history);

/// Lets a deferred tensor contain, in place of what has happened to it, what `origin` gives when it is
/// materialized: a tensor of the same shape. Views of the tensor change with it. False, and nothing happens,
/// if it is not deferred, or only a part of its storage.
bool replace_history(const at::Tensor& tensor, TensorHistory::Origin origin);

/// Gives a deferred tensor memory in which nothing is written.
void give_memory(const at::Tensor& tensor);

/// Operators that use `tensor` need not come to us any more, unless a TensorMark wants them.
void forget_deferral(const at::Tensor& tensor);

}  // namespace lockstep::detail
