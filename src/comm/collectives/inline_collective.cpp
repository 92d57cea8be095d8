#include "comm/collectives/inline_collective.h"

#include <cstring>

#include "comm/algorithms/ordered_reduction.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMostBytes = 16 << 10;  // of one rank; a socket takes that at once

std::string_view payload_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

bool InlineCollective::is_possible(const Collective& collective) {
  if (!row_of(collective.kind).can_be_inline) return false;
  const auto& operand = operand_of(collective);
  return !operand.defined() || operand.nbytes() <= kMostBytes;
}

InlineCollective::InlineCollective(const Collective& collective, int rank, int size, Scratch& scratch)
    : contiguous_(collective), rank_(rank), size_(size) {
  const auto& call = contiguous_.get();
  if (call.kind == CollectiveKind::kBarrier) return;
  if (call.kind == CollectiveKind::kAllReduce) {
    rows_ = scratch.get(static_cast<std::int64_t>(call.output.nbytes()) * size);
  }
  if (call.kind != CollectiveKind::kBroadcast) put(rank, payload_of(operand_of(call)));
}

std::string_view InlineCollective::own_bytes() const {
  const auto& call = contiguous_.get();
  const bool has_nothing = call.kind == CollectiveKind::kBarrier ||
                           (call.kind == CollectiveKind::kBroadcast && call.root != rank_);
  return has_nothing ? std::string_view() : payload_of(operand_of(call));
}

char* InlineCollective::row_of_member(int member) {
  const auto& call = contiguous_.get();
  const bool is_one_row = call.kind == CollectiveKind::kBroadcast;
  const auto& rows = rows_.defined() ? rows_ : call.output;
  const auto offset = is_one_row ? 0 : static_cast<std::size_t>(member) * operand_of(call).nbytes();
  return static_cast<char*>(rows.mutable_data_ptr()) + offset;
}

void InlineCollective::put(int member, std::string_view bytes) {
  if (bytes.empty()) return;
  auto* const row = row_of_member(member);
  if (row != bytes.data()) std::memcpy(row, bytes.data(), bytes.size());
}

void InlineCollective::finish() {
  const auto& call = contiguous_.get();
  if (call.kind == CollectiveKind::kBarrier) return;
  if (rows_.defined() && call.output.numel() > 0) {
    const auto count = static_cast<std::size_t>(call.output.numel());
    std::vector<const void*> rows;
    for (int member = 0; member < size_; ++member) rows.push_back(row_of_member(member));
    reduce_rows(rows, call.output.scalar_type(), call.op, call.output.mutable_data_ptr(), count);
  }
  contiguous_.copy_back();
}

}  // namespace lockstep::detail
