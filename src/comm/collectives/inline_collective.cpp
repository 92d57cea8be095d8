#include "comm/collectives/inline_collective.h"

#include <cstring>

#include "comm/algorithms/reduce_rows.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMostBytes = 16 << 10;  // of one rank; a socket takes that at once

const at::Tensor& contribution(const Collective& collective) {
  return collective.kind == CollectiveKind::kAllGather ? collective.input : collective.output;
}

std::string_view payload_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

bool SmallCollective::is_one(const Collective& collective) {
  switch (collective.kind) {
    case CollectiveKind::kBarrier:
      return true;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kAllGather:
      return contribution(collective).nbytes() <= kMostBytes;
    default:
      return false;
  }
}

SmallCollective::SmallCollective(const Collective& collective, int rank, int size, Scratch& scratch)
    : twin_(collective), rank_(rank), size_(size) {
  const auto& dense = twin_.get();
  if (dense.kind == CollectiveKind::kBarrier) return;
  if (dense.kind == CollectiveKind::kAllReduce) {
    rows_ = scratch.get(static_cast<std::int64_t>(dense.output.nbytes()) * size);
  }
  if (dense.kind != CollectiveKind::kBroadcast) put(rank, payload_of(contribution(dense)));
}

std::string_view SmallCollective::own_bytes() const {
  const auto& dense = twin_.get();
  const bool has_nothing = dense.kind == CollectiveKind::kBarrier ||
                           (dense.kind == CollectiveKind::kBroadcast && dense.root != rank_);
  return has_nothing ? std::string_view() : payload_of(contribution(dense));
}

char* SmallCollective::row_of(int member) {
  const auto& dense = twin_.get();
  const bool is_one_row = dense.kind == CollectiveKind::kBroadcast;
  const auto& rows = rows_.defined() ? rows_ : dense.output;
  const auto offset = is_one_row ? 0 : static_cast<std::size_t>(member) * contribution(dense).nbytes();
  return static_cast<char*>(rows.mutable_data_ptr()) + offset;
}

void SmallCollective::put(int member, std::string_view bytes) {
  if (bytes.empty()) return;
  auto* const row = row_of(member);
  if (row != bytes.data()) std::memcpy(row, bytes.data(), bytes.size());
}

void SmallCollective::finish() {
  const auto& dense = twin_.get();
  if (dense.kind == CollectiveKind::kBarrier) return;
  if (rows_.defined() && dense.output.numel() > 0) {
    const auto count = static_cast<std::size_t>(dense.output.numel());
    std::vector<const void*> rows;
    for (int member = 0; member < size_; ++member) rows.push_back(row_of(member));
    fold(rows, dense.output.scalar_type(), dense.op, dense.output.mutable_data_ptr(), count);
  }
  twin_.copy_back();
}

}  // namespace lockstep::detail
