// Deferred tensors: their storages hold a history in place of memory, from which the contents can be made.
//
// Each storage has a history of its own: its memory is made, then operators write to it, or to views of it,
// one after the other. Random numbers come from a copy of the generator as it was when the operator was
// called. So the contents of any storage can be made at any time, in any order, and several times, without
// the others.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <lockstep/parallel/deferred_init.h>

#include "parallel/dispatch/backward_thread.h"

namespace lockstep::detail {

class TensorHistory;

/// Uninitialized memory on the CPU. Large blocks come directly from the system and are returned to it, since
/// large blocks among small ones would fragment the heap.
c10::Storage new_memory(std::size_t n_bytes);

/// A tensor among an operator's arguments.
struct TapedArgument {
  std::size_t argument;
  TensorPlace place;
  std::shared_ptr<const TensorHistory> source;  ///< null: the history of the storage that is written
  std::size_t length = 0;  ///< the number of calls in that history at the time of this one
};

/// A call that is to run later.
struct TapedOperator {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  ///< without tensors; generators are copies
  std::vector<TapedArgument> tensors;
  bool overwrites = false;  ///< the whole storage, whatever was there before

  /// Runs it; `memory` is that of tensors without a source.
  at::Tensor run(const c10::Storage& memory) const;
};

/// Not thread-safe.
class TensorHistory {
 public:
  /// Returns a tensor with memory of its own.
  using Origin = std::function<at::Tensor()>;

  /// Begins with uninitialized memory.
  explicit TensorHistory(std::size_t n_bytes) : n_bytes_(n_bytes) {}
  /// Begins with the tensor that `origin` returns, in the layout `place`.
  TensorHistory(std::size_t n_bytes, TensorPlace place, Origin origin);

  void append(TapedOperator call) { calls_.push_back(std::move(call)); }
  std::size_t length() const { return calls_.size(); }

  /// New memory with the contents after the first `length` calls.
  c10::Storage replay(std::size_t length) const;

 private:
  c10::Storage beginning() const;
  std::size_t first_that_matters(std::size_t length) const;

  std::size_t n_bytes_;
  std::optional<TensorPlace> place_;  // of what origin_ gives
  Origin origin_;
  std::vector<TapedOperator> calls_;
};

// Operators on deferred tensors are recorded where they can wait; the others get materialized arguments.

/// Whether this thread builds within DeferredInit.
bool& is_deferring();

/// While it lives, new tensors of this thread are not deferred.
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

/// The history of the storage of `tensor`; null if it is not deferred.
std::shared_ptr<TensorHistory> history_of(const at::Tensor& tensor);

/// A deferred tensor on the CPU that looks like `meta`, a dense tensor on the meta device. Operators on it
/// come to our fallback.
at::Tensor make_deferred(const at::Tensor& meta, std::shared_ptr<TensorHistory> history);

/// Replaces the history of a deferred tensor by `origin`, which returns a tensor of the same shape when it is
/// materialized. Views of the tensor change with it. Returns false and does nothing if the tensor is not
/// deferred, or is only a part of its storage.
bool replace_history(const at::Tensor& tensor, TensorHistory::Origin origin);

/// Gives a deferred tensor uninitialized memory.
void give_memory(const at::Tensor& tensor);

/// Removes the dispatch key of `tensor`, unless a TensorMark needs it.
void forget_deferral(const at::Tensor& tensor);

}  // namespace lockstep::detail
