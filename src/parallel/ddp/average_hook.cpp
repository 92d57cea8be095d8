#include "parallel/ddp/average_hook.h"

namespace lockstep::detail {

c10::intrusive_ptr<c10::ivalue::Future> AverageHook::runHook(c10d::GradBucket& bucket) {
  std::vector<at::Tensor> tensors{bucket.getBufferRef()};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  return state_->allreduce(tensors, options)->getFuture();
}

}  // namespace lockstep::detail
