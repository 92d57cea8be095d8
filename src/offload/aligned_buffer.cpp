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

}  // namespace

// What lies before the first huge page is never touched, and takes no memory.
AlignedBuffer::AlignedBuffer(std::uint64_t wanted) {
  if (wanted == 0) return;
  const std::size_t size = aligned(wanted);
  const bool is_large = size >= kHugePage;
  const std::size_t mapped = is_large ? size + kHugePage : size;
  void* start = size < wanted || mapped < size
                    ? MAP_FAILED
                    : ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  mapped_ = {static_cast<std::byte*>(start), mapped};
  bytes_ = {is_large ? aligned_start(mapped_.data(), kHugePage) : mapped_.data(), size};
  if (is_large) (void)::madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE);  // a wish
}

AlignedBuffer::~AlignedBuffer() {
  if (!mapped_.empty()) ::munmap(mapped_.data(), mapped_.size());
}

}  // namespace lockstep::offload
