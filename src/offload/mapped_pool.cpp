#include "offload/mapped_pool.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep::offload {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (std::max<std::uint64_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

std::unique_ptr<MappedMemory> MappedPool::take(std::uint64_t bytes) {
  bytes = whole_pages(bytes);
  decltype(unused_) outgrown;  // unmapped without the lock
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = unused_.lower_bound(bytes); found != unused_.end() && found->first < 2 * bytes) {
      auto memory = std::move(found->second);
      unused_bytes_ -= found->first;
      unused_.erase(found);
      use(memory->bytes().size());
      return memory;
    }
    if (unused_bytes_ + bytes > most_in_use_) {
      outgrown = std::exchange(unused_, {});
      unused_bytes_ = 0;
    }
    name = "pool_" + std::to_string(files_++);
  }
  auto memory = std::make_unique<MappedMemory>(folder_, name, bytes);
  const std::lock_guard lock(mutex_);
  use(bytes);
  return memory;
}

void MappedPool::use(std::uint64_t bytes) {
  in_use_ += bytes;
  most_in_use_ = std::max(most_in_use_, in_use_);
}

void MappedPool::give_back(std::unique_ptr<MappedMemory> memory) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t bytes = memory->bytes().size();
  in_use_ -= bytes;
  unused_bytes_ += bytes;
  unused_.emplace(bytes, std::move(memory));
}

std::uint64_t MappedPool::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

std::uint64_t MappedPool::bytes_unused() const {
  const std::lock_guard lock(mutex_);
  return unused_bytes_;
}

}  // namespace lockstep::offload
