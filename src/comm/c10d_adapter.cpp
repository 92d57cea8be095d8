#include "comm/c10d_adapter.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

using Future = c10::ivalue::Future;

// A Work as c10d wants it: with a future.
class C10dWork final : public c10d::Work {
 public:
  C10dWork(std::shared_ptr<Pending> pending, c10::intrusive_ptr<Future> future,
           std::vector<at::Tensor> result)
      : pending_(std::move(pending)), future_(std::move(future)), result_(std::move(result)) {}

  bool isCompleted() override { return pending_->is_completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  std::exception_ptr exception() const override { return future_->exception_ptr(); }
  std::vector<at::Tensor> result() override { return result_; }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }
  bool wait(std::chrono::milliseconds /*of the group*/) override {
    pending_->wait();
    return true;
  }

 private:
  std::shared_ptr<Pending> pending_;
  c10::intrusive_ptr<Future> future_;
  std::vector<at::Tensor> result_;
};

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    default:
      throw CommError("comm", {.what = "reduction is not supported",
                               .expected = "sum, average, min, max or product",
                               .got = "c10d::ReduceOp " + std::to_string(op.op_),
                               .where = "",
                               .hint = ""});
  }
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1 && tensors[0].layout() == at::kStrided) return tensors[0];
  throw CommError("comm", {.what = "a collective takes one dense tensor",
                           .expected = "",
                           .got = std::to_string(tensors.size()) + " tensors, or a sparse one",
                           .where = "",
                           .hint = "sparse gradients are not supported"});
}

}  // namespace

C10dAdapter::C10dAdapter(std::shared_ptr<OrderedBackend> backend)
    : Backend(backend->rank(), backend->size()), backend_(std::move(backend)) {}

c10::intrusive_ptr<c10d::Work> C10dAdapter::start(const Collective& collective) {
  std::vector<at::Tensor> result;
  if (collective.output.defined()) result.push_back(collective.output);
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  auto pending = backend_->start(collective, [future, result](std::exception_ptr error) {
    error ? future->setError(error) : future->markCompleted(c10::IValue(result));
  });
  return c10::make_intrusive<C10dWork>(std::move(pending), future, result);
}

c10::intrusive_ptr<c10d::Work> C10dAdapter::allreduce(std::vector<at::Tensor>& tensors,
                                                      const c10d::AllreduceOptions& options) {
  return start(
      {.kind = CollectiveKind::kAllReduce, .output = only(tensors), .op = reduce_op_of(options.reduceOp)});
}

c10::intrusive_ptr<c10d::Work> C10dAdapter::broadcast(std::vector<at::Tensor>& tensors,
                                                      const c10d::BroadcastOptions& options) {
  return start({.kind = CollectiveKind::kBroadcast,
                .output = only(tensors),
                .root = static_cast<int>(options.rootRank)});
}

c10::intrusive_ptr<c10d::Work> C10dAdapter::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions&) {
  return start({.kind = CollectiveKind::kAllGather, .output = output, .input = input});
}

c10::intrusive_ptr<c10d::Work> C10dAdapter::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& options) {
  return start({.kind = CollectiveKind::kReduceScatter,
                .output = output,
                .input = input,
                .op = reduce_op_of(options.reduceOp)});
}

c10::intrusive_ptr<c10d::Work> C10dAdapter::barrier(const c10d::BarrierOptions&) { return start({}); }

}  // namespace lockstep::detail
