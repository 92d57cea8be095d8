#include "comm/collectives/collective_runner.h"

#include <lockstep/base/error.h>

#include "comm/collectives/dense.h"

namespace lockstep::detail {
namespace {

// Where all ranks know that there is nothing to move. Uneven kinds may have parts for others.
bool is_empty(const Collective& collective) {
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kRecv:
      return collective.output.numel() == 0;
    case CollectiveKind::kSend:
      return collective.input.numel() == 0;
    default:
      return false;
  }
}

void part_of(const at::Tensor& output, const at::Tensor& whole, int rank) {
  const auto part = output.numel();
  output.view({-1}).copy_(whole.view({-1}).narrow(0, rank * part, part));
}

}  // namespace

// Ranks of PyTorch would not come.
bool Executor::can_meet(const Collective& collective) const {
  return peers_ == Peers::kLockstep && !is_point_to_point(collective.kind) &&
         collective.kind != CollectiveKind::kMonitoredBarrier;
}

void Executor::perform(const Collective& collective) {
  if (is_empty(collective)) return;
  if (can_meet(collective)) transport_.meet();
  const DenseTwin twin(collective);
  perform_dense(twin.get());
  twin.copy_back();
}

bool Executor::is_near(const Collective& collective) const {
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
      return transport_.near().are_open() && is_ordered(collective.output, collective.op);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
      return transport_.near().are_open();
    default:
      return false;
  }
}

void Executor::perform_near(const Collective& collective, const Meetings& meetings) {
  const DenseTwin twin(collective);
  transport_.count_sent(transport_.near().perform(twin.get(), meetings));
  twin.copy_back();
}

void Executor::perform_dense(const Collective& collective) {
  const auto& output = collective.output;
  const auto& input = collective.input;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce(output, collective.op);
    case CollectiveKind::kReduce:
      return reduce(output, collective.root, collective.op);
    case CollectiveKind::kBroadcast:
      return transport_.broadcast(output, collective.root);
    case CollectiveKind::kAllGather:
      return transport_.all_gather(output, input);
    case CollectiveKind::kAllGatherList:
      return all_gather_list(collective);
    case CollectiveKind::kGather:
      return gather(collective);
    case CollectiveKind::kScatter:
      return scatter(collective);
    case CollectiveKind::kReduceScatter:
      return reduce_scatter(output, input, collective.op);
    case CollectiveKind::kAllToAll:
      return all_to_all(collective);
    case CollectiveKind::kAllToAllList:
      return transport_.exchange(collective.inputs, collective.outputs);
    case CollectiveKind::kBarrier:
      return transport_.barrier();
    case CollectiveKind::kMonitoredBarrier:
      return barrier_.wait(collective.timeout);
    case CollectiveKind::kSend:
      return transport_.send(input, collective.root, collective.tag);
    case CollectiveKind::kRecv:
      return transport_.recv(output, collective.root, collective.tag);
  }
}

// What the backend cannot do, or not as we promise, we do; ranks of PyTorch would not know how.
bool Executor::is_ordered(const at::Tensor& tensor, ReduceOp op) const {
  const auto dtype = tensor.scalar_type();
  if (peers_ == Peers::kLockstep) return reduction_ == Reduction::kOrdered || !reduces_as_promised(dtype, op);
  if (can_reduce_natively(dtype, op)) return false;
  throw CommError("comm", {.what = "ranks of PyTorch cannot reduce this with Gloo",
                           .expected = "a dtype and an operation that Gloo has",
                           .got = c10::toString(dtype)});
}

void Executor::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  if (is_ordered(tensor, op)) return ordered_.all_reduce(tensor, op);
  transport_.all_reduce_natively(tensor, op);
}

void Executor::reduce(const at::Tensor& tensor, int root, ReduceOp op) {
  if (is_ordered(tensor, op)) return ordered_.reduce(tensor, root, op);
  transport_.reduce_natively(transport_.rank() == root ? tensor : tensor.clone(), root, op);
}

// Gloo has no reduce-scatter of its own: c10d's, too, is an all-reduce of a copy.
void Executor::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (is_ordered(input, op)) return ordered_.reduce_scatter(output, input, op);
  const auto whole = input.clone();
  transport_.all_reduce_natively(whole, op);
  part_of(output, whole, transport_.rank());
}

void Executor::all_gather_list(const Collective& collective) {
  transport_.exchange(std::vector<at::Tensor>(collective.outputs.size(), collective.input),
                      collective.outputs);
}

void Executor::gather(const Collective& collective) {
  std::vector<at::Tensor> to(static_cast<std::size_t>(transport_.size()));
  to[static_cast<std::size_t>(collective.root)] = collective.input;
  transport_.exchange(to, collective.outputs);
}

void Executor::scatter(const Collective& collective) {
  std::vector<at::Tensor> from(static_cast<std::size_t>(transport_.size()));
  from[static_cast<std::size_t>(collective.root)] = collective.output;
  transport_.exchange(collective.inputs, from);
}

void Executor::all_to_all(const Collective& collective) {
  const auto size = transport_.size();
  transport_.all_to_all(collective.output, collective.input,
                        bytes_by_rank(collective.output, collective.output_splits, size),
                        bytes_by_rank(collective.input, collective.input_splits, size));
}

}  // namespace lockstep::detail
