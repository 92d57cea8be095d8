// A CommHook as c10d's Reducer sees it.
#pragma once

#include <vector>

#include <lockstep/parallel/ddp/comm_hook.h>

#include "comm/compat.h"

namespace lockstep::detail {

/// The Reducer wants a future per bucket, waits for it when backward is over, and has its value parsed. Ours
/// is done from the start and only tells which bucket to finish: so the wait happens in parseHookResult(),
/// where it can work off the communicator's queue instead of sleeping.
class HookAdapter final : public c10d::CommHookInterface {
 public:
  HookAdapter(CommHook hook, Communicator comm)
      : hook_(std::move(hook)), comm_(std::move(comm)), divisor_(comm_.size()) {}

  /// GradBucket::divisor() from now on.
  void set_divisor(int divisor) { divisor_ = divisor; }

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

  /// Waits for the bucket of that index and returns its averages.
  at::Tensor finish(std::size_t index);

 private:
  CommHook hook_;
  Communicator comm_;
  int divisor_;
  std::vector<FinishReduction> finishes_;  // by index of bucket
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> tickets_;
};

}  // namespace lockstep::detail
