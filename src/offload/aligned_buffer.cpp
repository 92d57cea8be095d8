#include "offload/aligned_buffer.h"

#include <sys/mman.h>

#include <new>

namespace lockstep::offload {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// From the next multiple of `alignment` on.
std::byte* aligned_start(std::byte* start, std::size_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  return start + (alignment - address % alignment) % alignment;
}

void unmap(std::span<std::byte> bytes) {
  if (!bytes.empty()) ::munmap(bytes.data(), bytes.size());
}

}  // namespace

// Limits of memory count mapped pages, even those that are never touched.
AlignedBuffer::AlignedBuffer(std::uint64_t wanted) {
  if (wanted == 0) return;
  const std::size_t size = aligned(wanted);
  const bool is_large = size >= kHugePage;
  const std::size_t mapped = is_large ? size + kHugePage : size;
  void* start = size < wanted || mapped < size
                    ? MAP_FAILED
                    : ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  auto* const all = static_cast<std::byte*>(start);
  bytes_ = {is_large ? aligned_start(all, kHugePage) : all, size};
  if (!is_large) return;
  unmap({all, bytes_.data()});
  unmap({bytes_.data() + size, all + mapped});
  (void)::madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE);  // only a hint to the system
}

AlignedBuffer::~AlignedBuffer() { unmap(bytes_); }

}  // namespace lockstep::offload
