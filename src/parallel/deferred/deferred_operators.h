// Operators on deferred tensors: those that can wait are taped, the others get what they need.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "parallel/dispatch/operator_info.h"

namespace lockstep::detail {

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

/// Puts the call off and replaces its arguments on the stack by its result. False, and the stack is as it
/// was, where it has to run now.
bool defer_operator(const c10::OperatorHandle& op, const OperatorInfo& info, std::vector<c10::IValue>& stack);

/// Materializes the tensors among `arguments`.
void materialize_arguments(std::span<const c10::IValue> arguments);

}  // namespace lockstep::detail
