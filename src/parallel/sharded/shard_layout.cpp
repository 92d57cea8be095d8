#include "parallel/sharded/shard_layout.h"

#include <algorithm>
#include <numeric>

#include <lockstep/optim/grad_norm.h>

namespace lockstep::detail {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Where each parameter begins if shards have `shard` elements; the end of the row comes last.
std::vector<std::int64_t> offsets_for(std::span<const std::int64_t> sizes, std::int64_t shard) {
  std::vector<std::int64_t> offsets;
  std::int64_t end = 0;
  for (const auto size : sizes) {
    auto begin = round_up(end, kRowAlignment);
    const bool is_cut = size > 0 && begin / shard != (begin + size - 1) / shard;
    if (is_cut) begin = round_up(begin, kGradNormBlock);
    offsets.push_back(begin);
    end = begin + size;
  }
  offsets.push_back(end);
  return offsets;
}

}  // namespace

ShardLayout::ShardLayout(std::span<const std::int64_t> sizes, int shards) {
  place(sizes, shards);
  cut(sizes, shards);
}

void ShardLayout::place(std::span<const std::int64_t> sizes, int shards) {
  std::int64_t sum = 0;
  for (const auto size : sizes) sum += round_up(size, kRowAlignment);
  const auto step = shards > 1 ? kGradNormBlock : kRowAlignment;
  shard_elements_ = std::max(step, round_up((sum + shards - 1) / shards, step));
  for (;; shard_elements_ += step) {
    offsets_ = offsets_for(sizes, shard_elements_);
    if (offsets_.back() <= shard_elements_ * shards) break;
  }
  offsets_.pop_back();
}

void ShardLayout::cut(std::span<const std::int64_t> sizes, int shards) {
  for (int shard = 0; shard < shards; ++shard) {
    const auto first = shard * shard_elements_;
    auto& pieces = pieces_.emplace_back();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto begin = std::clamp(offsets_[i], first, first + shard_elements_);
      const auto end = std::clamp(offsets_[i] + sizes[i], begin, first + shard_elements_);
      pieces.push_back(
          {.parameter = i, .begin = begin - offsets_[i], .count = end - begin, .offset = begin - first});
    }
    // An empty piece begins where the parameter is already over, or not yet there.
    for (auto& piece : pieces) piece.begin = std::clamp<std::int64_t>(piece.begin, 0, sizes[piece.parameter]);
  }
}

namespace {

Communicator group_of(const Communicator& comm, int color, int size) {
  return size == 1 ? Communicator() : comm.split(color).value();
}

std::int64_t sent_in(const Communicator& group) { return static_cast<std::int64_t>(group.bytes_sent()); }

// Where they are all that there are, they are no neighbours.
Communicator near_group(const Communicator& comm, int neighbours, int shards) {
  return group_of(comm, comm.rank() / neighbours, neighbours == shards ? 1 : neighbours);
}

}  // namespace

ShardMesh make_shard_mesh(const Communicator& comm, int shards, Neighbours near) {
  const int copies = comm.size() / shards;
  const int block = comm.rank() / shards;
  const bool has_far = near.reduce > 1 && near.reduce < shards;
  const int place = block * near.reduce + comm.rank() % near.reduce;
  return {.gather = group_of(comm, block, shards),
          .gather_near = near_group(comm, near.gather, shards),
          .reduce = group_of(comm, block, shards),
          .reduce_near = near_group(comm, near.reduce, shards),
          .reduce_far = group_of(comm, place, has_far ? shards / near.reduce : 1),
          .replicate = group_of(comm, comm.rank() % shards, copies)};
}

void ShardMesh::count_sent(ShardedStats& stats) const {
  stats.gather_bytes_sent += sent_in(gather);
  stats.secondary_gather_bytes_sent += sent_in(gather_near);
  stats.far_reduction_bytes_sent += sent_in(reduce_far);
  for (const auto* group : {&gather, &gather_near, &reduce, &reduce_near, &reduce_far, &replicate})
    stats.bytes_sent += sent_in(*group);
}

}  // namespace lockstep::detail
