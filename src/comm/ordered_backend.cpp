#include "comm/ordered_backend.h"

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "comm/errors.h"

namespace lockstep::detail {
namespace {

using Future = c10::ivalue::Future;

class QueuedPending final : public Pending {
 public:
  QueuedPending(std::shared_ptr<ProgressQueue> queue, std::shared_ptr<ProgressQueue::Task> task)
      : queue_(std::move(queue)), task_(std::move(task)) {}

  void wait() override { queue_->wait(*task_); }
  bool is_completed() const override { return queue_->is_done(*task_); }

 private:
  std::shared_ptr<ProgressQueue> queue_;
  std::shared_ptr<ProgressQueue::Task> task_;
};

// The same for c10d, which also wants a future.
class QueuedWork final : public c10d::Work {
 public:
  QueuedWork(QueuedPending pending, c10::intrusive_ptr<Future> future, std::vector<at::Tensor> result)
      : pending_(std::move(pending)), future_(std::move(future)), result_(std::move(result)) {}

  bool isCompleted() override { return pending_.is_completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  std::exception_ptr exception() const override { return future_->exception_ptr(); }
  std::vector<at::Tensor> result() override { return result_; }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }
  bool wait(std::chrono::milliseconds /*of the group*/) override {
    pending_.wait();
    return true;
  }

 private:
  QueuedPending pending_;
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

void part_of(const at::Tensor& output, const at::Tensor& whole, int rank) {
  const auto part = output.numel();
  output.view({-1}).copy_(whole.view({-1}).narrow(0, rank * part, part));
}

}  // namespace

OrderedBackend::OrderedBackend(c10::intrusive_ptr<c10d::Backend> inner, Reduction reduction)
    : Backend(inner->getRank(), inner->getSize()),
      transport_(std::move(inner)),
      ordered_(transport_),
      reduction_(reduction),
      queue_(std::make_shared<ProgressQueue>()) {}

OrderedBackend::~OrderedBackend() { close(); }

void OrderedBackend::drain() {
  queue_->run([] {});
}

void OrderedBackend::close() {
  const bool is_busy = queue_->close(std::make_exception_ptr(CommError(
      "comm", {.what = "the communicator is closed", .expected = "", .got = "", .where = "", .hint = ""})));
  if (is_busy) transport_.abort();
  queue_->join();
}

std::string OrderedBackend::activity() const {
  const char* name = activity_;
  return name ? std::string(name) + " seq " + std::to_string(sequence_) : "";
}

void OrderedBackend::run(const Collective& collective) {
  queue_->run([&] { execute(collective); });
}

std::shared_ptr<Pending> OrderedBackend::start(const Collective& collective) {
  return std::make_shared<QueuedPending>(queue_, queue_->push([this, collective] { execute(collective); }));
}

c10::intrusive_ptr<c10d::Work> OrderedBackend::start_for_c10d(const Collective& collective) {
  std::vector<at::Tensor> result;
  if (collective.output.defined()) result.push_back(collective.output);
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  auto task = queue_->push([this, collective] { execute(collective); },
                           [future, result](std::exception_ptr error) {
                             error ? future->setError(error) : future->markCompleted(c10::IValue(result));
                           });
  return c10::make_intrusive<QueuedWork>(QueuedPending(queue_, std::move(task)), future, result);
}

void OrderedBackend::execute(const Collective& collective) {
  const char* const name = name_of(collective.kind);
  sequence_ = enter_collective(name);
  activity_ = name;
  try {
    const at::NoGradGuard no_grad;
    perform(collective);
  } catch (...) {
    has_failed_ = true;
    activity_ = nullptr;
    leave_collective();
    rethrow_translated({.name = name, .sequence = sequence_, .rank = rank_, .size = size_});
  }
  activity_ = nullptr;
  leave_collective();
}

void OrderedBackend::perform(const Collective& collective) {
  const auto dense = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; };
  const auto output = dense(collective.output);
  const auto input = dense(collective.input);
  const bool is_empty = output.defined() && output.numel() == 0;
  if (is_empty) return;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      reduce(output, collective.op);
      break;
    case CollectiveKind::kBroadcast:
      transport_.broadcast(output, collective.root);
      break;
    case CollectiveKind::kAllGather:
      transport_.all_gather(output, input);
      break;
    case CollectiveKind::kReduceScatter:
      reduce_scatter(output, input, collective.op);
      break;
    case CollectiveKind::kBarrier:
      transport_.barrier();
      break;
  }
  if (output.defined() && !output.is_same(collective.output)) collective.output.copy_(output);
}

void OrderedBackend::reduce(const at::Tensor& tensor, ReduceOp op) {
  if (reduction_ == Reduction::kOrdered) return ordered_.all_reduce(tensor, op);
  transport_.reduce_natively(tensor, op);
}

// Gloo has no reduce-scatter of its own: c10d's, too, is an all-reduce of a copy.
void OrderedBackend::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (reduction_ == Reduction::kOrdered) return ordered_.reduce_scatter(output, input, op);
  const auto whole = input.clone();
  transport_.reduce_natively(whole, op);
  part_of(output, whole, rank_);
}

c10::intrusive_ptr<c10d::Work> OrderedBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                         const c10d::AllreduceOptions& options) {
  return start_for_c10d(
      {.kind = CollectiveKind::kAllReduce, .output = only(tensors), .op = reduce_op_of(options.reduceOp)});
}

c10::intrusive_ptr<c10d::Work> OrderedBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                         const c10d::BroadcastOptions& options) {
  return start_for_c10d({.kind = CollectiveKind::kBroadcast,
                         .output = only(tensors),
                         .root = static_cast<int>(options.rootRank)});
}

c10::intrusive_ptr<c10d::Work> OrderedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::AllgatherOptions&) {
  return start_for_c10d({.kind = CollectiveKind::kAllGather, .output = output, .input = input});
}

c10::intrusive_ptr<c10d::Work> OrderedBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return start_for_c10d({.kind = CollectiveKind::kReduceScatter,
                         .output = output,
                         .input = input,
                         .op = reduce_op_of(options.reduceOp)});
}

c10::intrusive_ptr<c10d::Work> OrderedBackend::barrier(const c10d::BarrierOptions&) {
  return start_for_c10d({});
}

}  // namespace lockstep::detail
