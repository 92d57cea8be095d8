// TensorHistory: how a storage that has no memory yet comes to its contents.
//
// Each storage has a history of its own: its memory is made, then operators write to it, or to views of it,
// one after the other. Random numbers come from a copy of the generator as it was when the operator was
// called. So any storage can be had at any time, in any order, and several times, without the others.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "parallel/dispatch/tensor_keeper.h"

namespace lockstep::detail {

class TensorHistory;

/// Memory on the CPU in which nothing is written, zero or not. Much of it at once comes from the system and
/// goes back there: what comes and goes between small blocks that stay would leave holes in the heap.
c10::Storage new_memory(std::size_t n_bytes);

/// A tensor among an operator's arguments.
struct TapedArgument {
  std::size_t argument;
  TensorPlace place;
  std::shared_ptr<const TensorHistory> source;  ///< of another storage; null: that which is being written
  std::size_t length = 0;                       ///< so much of it had happened
};

/// A call that is to run later.
struct TapedOperator {
  c10::OperatorHandle op;
  std::vector<c10::IValue>
      arguments;  ///< tensors left out; a generator is a copy that nobody else draws from
  std::vector<TapedArgument> tensors;
  bool overwrites = false;  ///< the whole storage, whatever was there before

  /// Runs it; `memory` is that of tensors without a source.
  at::Tensor run(const c10::Storage& memory) const;
};

/// Not thread-safe.
class TensorHistory {
 public:
  /// Gives a tensor with memory of its own.
  using Origin = std::function<at::Tensor()>;

  /// Begins with memory in which nothing is written.
  explicit TensorHistory(std::size_t n_bytes) : n_bytes_(n_bytes) {}
  /// Begins with what `origin` gives, laid out as `place` says.
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

}  // namespace lockstep::detail
