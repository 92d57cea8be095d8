#include "comm/ordered_backend.h"

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "comm/errors.h"

namespace lockstep::detail {
namespace {

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

void part_of(const at::Tensor& output, const at::Tensor& whole, int rank) {
  const auto part = output.numel();
  output.view({-1}).copy_(whole.view({-1}).narrow(0, rank * part, part));
}

}  // namespace

OrderedBackend::OrderedBackend(c10::intrusive_ptr<c10d::Backend> inner, Reduction reduction)
    : transport_(std::move(inner)),
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

std::shared_ptr<Pending> OrderedBackend::start(const Collective& collective, OnDone on_done) {
  auto task = queue_->push([this, collective] { execute(collective); }, std::move(on_done));
  return std::make_shared<QueuedPending>(queue_, std::move(task));
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
    rethrow_translated({.name = name, .sequence = sequence_, .rank = rank(), .size = size()});
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
  part_of(output, whole, rank());
}

}  // namespace lockstep::detail
