#include "fuzz/memory.h"

#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

std::int64_t live = 0;  // bytes, since limit_memory(); this program has one thread
std::int64_t limit = std::numeric_limits<std::int64_t>::max();

std::int64_t size_of(void* memory) { return static_cast<std::int64_t>(::malloc_usable_size(memory)); }

void give_back(void* memory) {
  if (memory != nullptr) live -= size_of(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* memory = bytes < static_cast<std::size_t>(limit) ? std::malloc(bytes) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  live += size_of(memory);
  if (live <= limit) return memory;
  give_back(memory);
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }

namespace lockstep::fuzz {

void limit_memory(std::size_t bytes) {
  live = 0;
  limit = static_cast<std::int64_t>(bytes);
}

void lift_memory_limit() { limit = std::numeric_limits<std::int64_t>::max(); }

}  // namespace lockstep::fuzz
