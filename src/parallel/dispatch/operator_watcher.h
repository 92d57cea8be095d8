// Looking on while a thread calls operators, beside whoever records them.
#pragma once

#include <lockstep/parallel/dispatch/operator_call.h>

namespace lockstep::detail {

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

  /// How many backward passes ran around it when it was made.
  int depth() const { return depth_; }

 private:
  int depth_;
};

/// Whether this thread has any.
bool has_operator_watchers();

/// For all of this thread.
void tell_before(OperatorCall& call);
void tell_after(OperatorCall& call);

}  // namespace lockstep::detail
