// The comm hook of our Reducer: what happens to a bucket of gradients.
#pragma once

#include "comm/compat.h"

namespace lockstep::detail {

/// Sums a bucket over ranks, then divides: c10d's own hook divides first, which rounds once more, and
/// differently from what the sharded strategies do. Asynchronous.
class AverageHook final : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
};

}  // namespace lockstep::detail
