#include "parallel/dispatch/operator_watcher.h"

#include <vector>

#include "parallel/dispatch/hook_engine.h"
#include "parallel/dispatch/operator_recorder.h"

namespace lockstep::detail {
namespace {

std::vector<OperatorWatcher*>& watchers_of_thread() {
  thread_local std::vector<OperatorWatcher*> watchers;
  return watchers;
}

template <class Tell>
void tell_present(const Tell& tell) {
  const auto depth = backward_thread()->depth;
  for (auto* watcher : watchers_of_thread()) {
    if (watcher->depth() == depth) tell(*watcher);
  }
}

}  // namespace

OperatorWatcher::OperatorWatcher() : depth_(backward_thread()->depth) {
  watchers_of_thread().push_back(this);
  follow_operators();
}

OperatorWatcher::~OperatorWatcher() {
  watchers_of_thread().pop_back();
  follow_operators();
}

bool has_operator_watchers() { return !watchers_of_thread().empty(); }

void tell_before(OperatorCall& call) {
  tell_present([&](OperatorWatcher& watcher) { watcher.before(call); });
}

void tell_after(OperatorCall& call) {
  tell_present([&](OperatorWatcher& watcher) { watcher.after(call); });
}

}  // namespace lockstep::detail
