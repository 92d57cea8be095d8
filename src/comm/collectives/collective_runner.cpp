#include "comm/collectives/collective_runner.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

// Where all ranks know that there is nothing to move. Uneven kinds may have parts for others.
bool is_empty(const Collective& collective) {
  const auto& operand = operand_of(collective);
  return operand.defined() && operand.numel() == 0 && !row_of(collective.kind).is_uneven();
}

void copy_part(const at::Tensor& output, const at::Tensor& whole, int rank) {
  const auto part = output.numel();
  output.view({-1}).copy_(whole.view({-1}).narrow(0, rank * part, part));
}

at::Tensor contiguous(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.resolve_conj().resolve_neg().contiguous() : tensor;
}

void copy_unless_same(const at::Tensor& tensor, const at::Tensor& twin) {
  if (tensor.defined() && !tensor.is_same(twin)) tensor.copy_(twin);
}

}  // namespace

ContiguousCollective::ContiguousCollective(const Collective& original)
    : original_(original), contiguous_(original) {
  contiguous_.output = contiguous(contiguous_.output);
  contiguous_.input = contiguous(contiguous_.input);
  for (auto& tensor : contiguous_.outputs) tensor = contiguous(tensor);
  for (auto& tensor : contiguous_.inputs) tensor = contiguous(tensor);
}

void ContiguousCollective::copy_back() const {
  copy_unless_same(original_.output, contiguous_.output);
  for (std::size_t i = 0; i < contiguous_.outputs.size(); ++i)
    copy_unless_same(original_.outputs[i], contiguous_.outputs[i]);
}

void CollectiveRunner::run(const Collective& collective) {
  if (is_empty(collective)) return;
  if (!is_message(collective.kind)) meet_once();
  const ContiguousCollective contiguous(collective);
  (this->*row_of(collective.kind).run)(contiguous.get());
  contiguous.copy_back();
}

// Ranks of PyTorch would not come.
void CollectiveRunner::meet_once() {
  if (have_met_ || peers_ != Peers::kLockstep) return;
  auto access = transport_.meet();
  if (access.is_mutual()) peer_memory_.open(std::move(access.owners));
  have_met_ = true;
}

bool CollectiveRunner::uses_peer_memory(const Collective& collective) const {
  const auto& row = row_of(collective.kind);
  return row.run_in_peer_memory && peer_memory_.are_open() && (!row.is_reduction || is_ordered(collective));
}

void CollectiveRunner::run_in_peer_memory(const Collective& collective, const Meetings& meetings) {
  const ContiguousCollective contiguous(collective);
  transport_.count_sent(peer_memory_.perform(contiguous.get(), meetings));
  contiguous.copy_back();
}

// What the transport cannot reduce, or not as we promise, we do; ranks of PyTorch would not know how.
bool CollectiveRunner::is_ordered(const Collective& collective) const {
  const auto dtype = collective.output.scalar_type();
  if (peers_ == Peers::kLockstep) {
    return reduction_ == Reduction::kOrdered ||
           transport_.native_reduction(dtype, collective.op) != NativeReduction::kExact;
  }
  if (transport_.native_reduction(dtype, collective.op) != NativeReduction::kNone) return false;
  throw CommError("comm", {.what = "ranks of PyTorch cannot reduce this with Gloo",
                           .expected = "a dtype and an operation that Gloo has",
                           .got = c10::toString(dtype)});
}

void CollectiveRunner::all_reduce(const Collective& collective) {
  if (is_ordered(collective)) return ordered_.all_reduce(collective.output, collective.op);
  transport_.all_reduce(collective.output, collective.op);
}

void CollectiveRunner::reduce(const Collective& collective) {
  const auto& tensor = collective.output;
  const int root = collective.root;
  if (is_ordered(collective)) return ordered_.reduce(tensor, root, collective.op);
  transport_.reduce(transport_.rank() == root ? tensor : tensor.clone(), root, collective.op);
}

// Gloo has no reduce-scatter of its own: c10d's, too, is an all-reduce of a copy.
void CollectiveRunner::reduce_scatter(const Collective& collective) {
  const auto& output = collective.output;
  const auto& input = collective.input;
  if (is_ordered(collective)) return ordered_.reduce_scatter(output, input, collective.op);
  const auto whole = input.clone();
  transport_.all_reduce(whole, collective.op);
  copy_part(output, whole, transport_.rank());
}

void CollectiveRunner::broadcast(const Collective& collective) {
  transport_.broadcast(collective.output, collective.root);
}

void CollectiveRunner::all_gather(const Collective& collective) {
  transport_.all_gather(collective.output, collective.input);
}

void CollectiveRunner::all_gather_list(const Collective& collective) {
  transport_.exchange(std::vector<at::Tensor>(collective.outputs.size(), collective.input),
                      collective.outputs);
}

void CollectiveRunner::gather(const Collective& collective) {
  std::vector<at::Tensor> to(static_cast<std::size_t>(transport_.size()));
  to[static_cast<std::size_t>(collective.root)] = collective.input;
  transport_.exchange(to, collective.outputs);
}

void CollectiveRunner::scatter(const Collective& collective) {
  std::vector<at::Tensor> from(static_cast<std::size_t>(transport_.size()));
  from[static_cast<std::size_t>(collective.root)] = collective.output;
  transport_.exchange(collective.inputs, from);
}

void CollectiveRunner::all_to_all(const Collective& collective) {
  const auto size = transport_.size();
  transport_.all_to_all(collective.output, collective.input,
                        bytes_by_rank(collective.output, collective.output_splits, size),
                        bytes_by_rank(collective.input, collective.input_splits, size));
}

void CollectiveRunner::all_to_all_list(const Collective& collective) {
  transport_.exchange(collective.inputs, collective.outputs);
}

void CollectiveRunner::barrier(const Collective& /*no tensor*/) { transport_.barrier(); }

void CollectiveRunner::send(const Collective& collective) {
  transport_.send(collective.input, collective.root, collective.tag);
}

void CollectiveRunner::recv(const Collective& collective) {
  transport_.recv(collective.output, collective.root, collective.tag);
}

}  // namespace lockstep::detail
