#include "comm/c10d_adapter.h"

#include <lockstep/base/error.h>

#include "comm/collectives/checks.h"

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
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBitXor;
    default:
      throw CommError("comm", {.what = "reduction is not supported",
                               .expected = "sum, average, min, max, product or a bitwise one",
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

const std::vector<at::Tensor>& only(const std::vector<std::vector<at::Tensor>>& lists) {
  if (lists.size() == 1) return lists[0];
  throw CommError("comm", {.what = "a collective takes one list of tensors",
                           .got = std::to_string(lists.size()) + " lists"});
}

// Ranks other than the root may leave the list out, or give an empty one.
std::vector<at::Tensor> list_or_none(const std::vector<std::vector<at::Tensor>>& lists) {
  return lists.empty() ? std::vector<at::Tensor>() : only(lists);
}

at::Tensor joined(const std::vector<at::Tensor>& parts) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (const auto& part : parts) flat.push_back(part.reshape({-1}));
  return at::cat(flat);
}

int int_of(std::int64_t rank) { return static_cast<int>(rank); }

// What a caller finds in the future: the tensors that were written.
std::vector<at::Tensor> results_of(const Collective& collective) {
  if (!collective.output.defined()) return collective.outputs;
  return {collective.output};
}

// A future that waits for `start`'s collectives, as the Work that c10d hands out.
template <class Start>
c10::intrusive_ptr<c10d::Work> started(std::vector<at::Tensor> results, Start start) {
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  auto pending = start([future, results](std::exception_ptr error) {
    error ? future->setError(error) : future->markCompleted(c10::IValue(results));
  });
  return c10::make_intrusive<C10dWork>(std::move(pending), future, std::move(results));
}

}  // namespace

C10dAdapter::C10dAdapter(std::shared_ptr<OrderedBackend> backend, std::chrono::milliseconds timeout)
    : Backend(backend->identity().rank, backend->identity().size()),
      backend_(std::move(backend)),
      timeout_(timeout) {}

Collective C10dAdapter::checked(Collective collective) const {
  check_collective(collective, rank_, size_);
  return collective;
}

C10dAdapter::Work C10dAdapter::start(Collective collective) {
  const auto ready = checked(std::move(collective));
  return started(results_of(ready), [&](auto on_done) { return backend_->start(ready, std::move(on_done)); });
}

C10dAdapter::Work C10dAdapter::start_all(std::vector<Collective> collectives) {
  Tensors results;
  for (const auto& collective : collectives) results.push_back(checked(collective).output);
  return started(std::move(results), [&](auto on_done) {
    return backend_->start_all(std::move(collectives), std::move(on_done));
  });
}

C10dAdapter::Work C10dAdapter::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return start(
      {.kind = CollectiveKind::kAllReduce, .output = only(tensors), .op = reduce_op_of(options.reduceOp)});
}

C10dAdapter::Work C10dAdapter::allreduce_coalesced(Tensors& tensors,
                                                   const c10d::AllreduceCoalescedOptions& options) {
  const auto op = reduce_op_of(options.reduceOp);
  std::vector<Collective> all;
  for (const auto& tensor : tensors) {
    all.push_back({.kind = CollectiveKind::kAllReduce, .output = tensor, .op = op});
  }
  return start_all(std::move(all));
}

C10dAdapter::Work C10dAdapter::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return start({.kind = CollectiveKind::kReduce,
                .output = only(tensors),
                .op = reduce_op_of(options.reduceOp),
                .root = int_of(options.rootRank)});
}

C10dAdapter::Work C10dAdapter::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return start(
      {.kind = CollectiveKind::kBroadcast, .output = only(tensors), .root = int_of(options.rootRank)});
}

C10dAdapter::Work C10dAdapter::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  return start({.kind = CollectiveKind::kAllGatherList, .input = only(inputs), .outputs = only(outputs)});
}

C10dAdapter::Work C10dAdapter::_allgather_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::AllgatherOptions&) {
  return start({.kind = CollectiveKind::kAllGather, .output = output, .input = input});
}

C10dAdapter::Work C10dAdapter::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                               const c10d::AllgatherOptions&) {
  std::vector<Collective> all;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    all.push_back({.kind = CollectiveKind::kAllGather, .output = outputs[i], .input = inputs.at(i)});
  }
  return start_all(std::move(all));
}

C10dAdapter::Work C10dAdapter::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return start({.kind = CollectiveKind::kGather,
                .input = only(inputs),
                .outputs = list_or_none(outputs),
                .root = int_of(options.rootRank)});
}

C10dAdapter::Work C10dAdapter::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) {
  return start({.kind = CollectiveKind::kScatter,
                .output = only(outputs),
                .inputs = list_or_none(inputs),
                .root = int_of(options.rootRank)});
}

C10dAdapter::Work C10dAdapter::reduce_scatter(Tensors& outputs, Lists& inputs,
                                              const c10d::ReduceScatterOptions& options) {
  return start({.kind = CollectiveKind::kReduceScatter,
                .output = only(outputs),
                .input = joined(only(inputs)),
                .op = reduce_op_of(options.reduceOp)});
}

C10dAdapter::Work C10dAdapter::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::ReduceScatterOptions& options) {
  return start({.kind = CollectiveKind::kReduceScatter,
                .output = output,
                .input = input,
                .op = reduce_op_of(options.reduceOp)});
}

C10dAdapter::Work C10dAdapter::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                               const c10d::ReduceScatterOptions& options) {
  const auto op = reduce_op_of(options.reduceOp);
  std::vector<Collective> all;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    all.push_back(
        {.kind = CollectiveKind::kReduceScatter, .output = outputs[i], .input = inputs.at(i), .op = op});
  }
  return start_all(std::move(all));
}

C10dAdapter::Work C10dAdapter::alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                                             Splits& input_splits, const c10d::AllToAllOptions&) {
  return start({.kind = CollectiveKind::kAllToAll,
                .output = output,
                .input = input,
                .output_splits = output_splits,
                .input_splits = input_splits});
}

C10dAdapter::Work C10dAdapter::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  return start({.kind = CollectiveKind::kAllToAllList, .outputs = outputs, .inputs = inputs});
}

C10dAdapter::Work C10dAdapter::send(Tensors& tensors, int dst, int tag) {
  return start({.kind = CollectiveKind::kSend, .input = only(tensors), .root = dst, .tag = tag});
}

C10dAdapter::Work C10dAdapter::recv(Tensors& tensors, int src, int tag) {
  return start({.kind = CollectiveKind::kRecv, .output = only(tensors), .root = src, .tag = tag});
}

C10dAdapter::Work C10dAdapter::barrier(const c10d::BarrierOptions&) { return start({}); }

void C10dAdapter::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
  backend_->run({.kind = CollectiveKind::kMonitoredBarrier, .timeout = timeout});
}

}  // namespace lockstep::detail
