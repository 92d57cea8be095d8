#include "parallel/sharded/memory_pool.h"

#include <algorithm>

#include <lockstep/torch.h>

#include "optim/page_memory.h"

namespace lockstep::detail {

at::Tensor MemoryPool::take(std::int64_t elements, at::ScalarType dtype) {
  const auto fits = [&](const at::Tensor& buffer) {
    return buffer.numel() == elements && buffer.scalar_type() == dtype;
  };
  const auto found = std::ranges::find_if(free_, fits);
  at::Tensor buffer;
  if (found != free_.end()) {
    buffer = std::move(*found);
    free_.erase(found);
    kept_ -= static_cast<std::int64_t>(buffer.nbytes());
  } else {
    const c10::InferenceMode off(false);
    buffer = zeros_in_pages(elements, dtype);
  }
  in_use_ += static_cast<std::int64_t>(buffer.nbytes());
  peak_ = std::max(peak_, in_use_);
  limit_ = std::max(limit_, in_use_);
  // Sizes that are asked for no more make room for those that are.
  while (!free_.empty() && in_use_ + kept_ > limit_) {
    kept_ -= static_cast<std::int64_t>(free_.front().nbytes());
    free_.erase(free_.begin());
  }
  return buffer;
}

void MemoryPool::give(at::Tensor buffer) {
  const auto bytes = static_cast<std::int64_t>(buffer.nbytes());
  in_use_ -= bytes;
  kept_ += bytes;
  free_.push_back(std::move(buffer));
}

void MemoryPool::forget_peak() {
  free_.clear();
  kept_ = 0;
  limit_ = in_use_;
}

}  // namespace lockstep::detail
