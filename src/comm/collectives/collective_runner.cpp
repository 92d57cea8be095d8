#include "comm/collectives/collective_runner.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <lockstep/base/error.h>

#include "comm/algorithms/reduce_rows.h"
#include "comm/shared_memory/segment_board.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMostBytes = 16 << 10;  // of one rank, inline; a socket takes that at once
static_assert(kMostBytes <= SegmentBoard::kMostPayload);

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
  if (!tensor.defined() || (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg())) return tensor;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

void copy_unless_same(const at::Tensor& tensor, const at::Tensor& twin) {
  if (tensor.defined() && !tensor.is_same(twin)) tensor.copy_(twin);
}

// The same call on contiguous tensors: the caller's own where they are contiguous already, else copies.
class ContiguousCollective {
 public:
  // Borrows it.
  explicit ContiguousCollective(const Collective& original);

  const Collective& get() const { return contiguous_; }

  // Writes the results to the caller's tensors.
  void copy_back() const;

 private:
  const Collective& original_;
  Collective contiguous_;
};

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

std::string_view payload_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// A small collective, whose data travel with the announcement.
//
// Ranks that compare what they are about to do send each other a message anyway. Where the data fit into it,
// the round that checks the collective is the collective, and the transport is not asked at all.
class InlineCollective {
 public:
  using InlineRows = CollectiveRunner::InlineRows;

  // `rows` are used until finish().
  InlineCollective(const Collective& collective, int rank, int size, InlineRows& rows);

  // What this rank gives to every other one.
  std::string_view own_bytes() const;

  // What member `member` gave.
  void put(int member, std::string_view bytes);

  // When all are there: writes the results.
  void finish();

 private:
  std::byte* row_of_member(int member);

  ContiguousCollective contiguous_;
  int rank_;
  int size_;
  std::byte* rows_ = nullptr;  // of an all-reduce
};

InlineCollective::InlineCollective(const Collective& collective, int rank, int size, InlineRows& rows)
    : contiguous_(collective), rank_(rank), size_(size) {
  const auto& call = contiguous_.get();
  if (call.kind == CollectiveKind::kBarrier) return;
  if (call.kind == CollectiveKind::kAllReduce) {
    const auto bytes = call.output.nbytes() * static_cast<std::size_t>(size);
    rows.resize(std::max(rows.size(), bytes / sizeof(InlineRows::value_type) + 1));
    rows_ = reinterpret_cast<std::byte*>(rows.data());
  }
  if (call.kind != CollectiveKind::kBroadcast) put(rank, payload_of(operand_of(call)));
}

std::string_view InlineCollective::own_bytes() const {
  const auto& call = contiguous_.get();
  const bool has_nothing = call.kind == CollectiveKind::kBarrier ||
                           (call.kind == CollectiveKind::kBroadcast && call.root != rank_);
  return has_nothing ? std::string_view() : payload_of(operand_of(call));
}

std::byte* InlineCollective::row_of_member(int member) {
  const auto& call = contiguous_.get();
  const bool is_one_row = call.kind == CollectiveKind::kBroadcast;
  auto* const rows = rows_ ? rows_ : static_cast<std::byte*>(call.output.mutable_data_ptr());
  const auto offset = is_one_row ? 0 : static_cast<std::size_t>(member) * operand_of(call).nbytes();
  return rows + offset;
}

void InlineCollective::put(int member, std::string_view bytes) {
  if (bytes.empty()) return;
  auto* const row = row_of_member(member);
  if (static_cast<const void*>(row) != bytes.data()) std::memcpy(row, bytes.data(), bytes.size());
}

void InlineCollective::finish() {
  const auto& call = contiguous_.get();
  if (call.kind == CollectiveKind::kBarrier) return;
  if (rows_ && call.output.numel() > 0) {
    const auto count = static_cast<std::size_t>(call.output.numel());
    std::vector<const void*> rows;
    for (int member = 0; member < size_; ++member) rows.push_back(row_of_member(member));
    reduce_rows(rows, call.output.scalar_type(), call.op, call.output.mutable_data_ptr(), count);
  }
  contiguous_.copy_back();
}

}  // namespace

void CollectiveRunner::run(const Collective& collective) {
  if (is_empty(collective)) return;
  const ContiguousCollective contiguous(collective);
  (this->*row_of(collective.kind).run)(contiguous.get());
  contiguous.copy_back();
}

bool CollectiveRunner::is_inline(const Collective& collective) {
  if (!row_of(collective.kind).can_be_inline) return false;
  const auto& operand = operand_of(collective);
  return !operand.defined() || operand.nbytes() <= kMostBytes;
}

// Packed, a small list travels with the announcement, and the transport has one tensor to reduce.
bool CollectiveRunner::is_packed(const Collective& collective) const {
  if (collective.kind != CollectiveKind::kAllReduceList) return false;
  return !in_segments_.are_open() || bytes_in(collective.outputs) <= static_cast<std::int64_t>(kMostBytes);
}

void CollectiveRunner::run_packed(const Collective& collective,
                                  c10::function_ref<void(const Collective& packed)> run) {
  const auto& tensors = collective.outputs;
  const auto dtype = tensors.front().scalar_type();
  const auto flat = packed_.get(bytes_in(tensors)).view(dtype);
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    parts.push_back(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    parts.back().copy_(tensor);
    begin += tensor.numel();
  }
  run({.kind = CollectiveKind::kAllReduce, .output = flat, .op = collective.op, .layout = collective.layout});
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(parts[i]);
}

void CollectiveRunner::run_inline(const Collective& collective, Meet meet) {
  InlineCollective small(collective, transport_.rank(), transport_.size(), inline_rows_);
  const auto own = small.own_bytes();
  meet(own, [&](int member, std::string_view bytes) { small.put(member, bytes); });
  transport_.count_sent(static_cast<std::int64_t>(own.size()) * (transport_.size() - 1));
  small.finish();
}

void CollectiveRunner::use(GroupSegments& segments) {
  if (segments.size() == transport_.size())
    in_segments_.open(segments);
  else
    on_two_levels_.open(transport_, segments);
}

bool CollectiveRunner::uses_segments(const Collective& collective) const {
  if (on_two_levels_.take(collective)) return !is_empty(collective);
  return in_segments_.are_open() && row_of(collective.kind).run_in_segments;
}

void CollectiveRunner::run_in_segments(const Collective& collective,
                                       SegmentCollectives::AwaitLate await_late) {
  const ContiguousCollective contiguous(collective);
  transport_.count_sent(in_segments_.are_open() ? in_segments_.perform(contiguous.get(), await_late)
                                                : on_two_levels_.perform(contiguous.get(), await_late));
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
