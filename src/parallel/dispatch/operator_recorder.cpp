#include "parallel/dispatch/operator_recorder.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

#include "parallel/dispatch/operator_watcher.h"
#include "parallel/dispatch/use_key.h"

namespace lockstep::detail {
namespace {

std::shared_ptr<OperatorRecorder>& recorder_of_thread() {
  thread_local std::shared_ptr<OperatorRecorder> recorder;
  return recorder;
}

}  // namespace

const std::shared_ptr<OperatorRecorder>& operator_recorder() { return recorder_of_thread(); }

void set_operator_recorder(std::shared_ptr<OperatorRecorder> recorder) {
  auto& current = recorder_of_thread();
  if (!current && !recorder) return;
  const auto before = std::exchange(current, std::move(recorder));
  follow_operators();
}

// With the key in the thread's own set the dispatcher sends us operators on any tensors.
void follow_operators() {
  c10::impl::tls_set_dispatch_key_included(use_key(), recorder_of_thread() || has_operator_watchers());
}

}  // namespace lockstep::detail
