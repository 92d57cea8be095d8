#include "parallel/sharded/row_reduction.h"

#include <algorithm>
#include <utility>

#include <lockstep/comm/flat_collectives.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

// An average is divided after each sum, so that sums in 16 bits do not overflow where the average would not.
class PlainReduction final : public RowReduction {
 public:
  PlainReduction(const ShardMesh& mesh, ReduceOp op) : mesh_(mesh), op_(op) {}

  void start(MemoryPool&, at::Tensor row, at::Tensor chunk, std::int64_t number) override {
    chunk_ = std::move(chunk);
    if (mesh_.shards() == 1) return sum_copies();
    work_ = reduce_scatter_flat_async(mesh_.reduce, chunk_, hold(std::move(row)), op_, number);
  }

  void go_on() override {
    if (mesh_.shards() == 1 || mesh_.replicate.size() == 1) return;
    work_.wait();
    sum_copies();
  }

  void finish(MemoryPool& pool) override {
    std::exchange(work_, {}).wait();
    give_back(pool);
  }

 private:
  void sum_copies() {
    if (mesh_.replicate.size() > 1) work_ = mesh_.replicate.all_reduce_async(chunk_, op_);
  }

  const ShardMesh& mesh_;
  const ReduceOp op_;
};

}  // namespace

at::Tensor RowReduction::hold(at::Tensor buffer) { return held_.emplace_back(std::move(buffer)); }

void RowReduction::give_back(MemoryPool& pool, const at::Tensor& buffer) {
  const auto found = std::ranges::find_if(held_, [&](const auto& held) { return held.is_same(buffer); });
  pool.give(std::move(*found));
  held_.erase(found);
}

void RowReduction::give_back(MemoryPool& pool) {
  forget_buffers();
  for (auto& buffer : std::exchange(held_, {})) pool.give(std::move(buffer));
  chunk_.reset();
}

void RowReduction::drop(MemoryPool& pool) noexcept {
  try {
    std::exchange(work_, {}).wait();
  } catch (...) {  // the group is of no further use, and the first error is on its way
  }
  forget_past();
  give_back(pool);
}

std::unique_ptr<RowReduction> plain_reduction(const ShardMesh& mesh, ReduceOp op) {
  return std::make_unique<PlainReduction>(mesh, op);
}

}  // namespace lockstep::detail
