#include "parallel/deferred/tensor_history.h"

#include <malloc.h>
#include <sys/mman.h>

#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

constexpr std::size_t kSmallestMapping = 1 << 20;

struct Mapping {
  void* address;
  std::size_t n_bytes;
};

void unmap(void* of) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(of));
  ::munmap(mapping->address, mapping->n_bytes);
}

c10::DataPtr map_memory(std::size_t n_bytes) {
  auto* const address = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory for a tensor of ", n_bytes, " bytes");
  return {address, new Mapping{address, n_bytes}, &unmap, c10::kCPU};
}

}  // namespace

c10::Storage new_memory(std::size_t n_bytes) {
  auto* const allocator = c10::GetAllocator(c10::kCPU);
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(n_bytes),
      n_bytes < kSmallestMapping ? allocator->allocate(n_bytes) : map_memory(n_bytes), allocator,
      /*resizable=*/true);
}

// A second run must draw what the first one did.
at::Tensor TapedOperator::run(const c10::Storage& memory) const {
  auto stack = arguments;
  for (auto& argument : stack) {
    if (argument.isGenerator()) argument = argument.toGenerator().clone();
  }
  for (const auto& tensor : tensors)
    stack[tensor.argument] = tensor.place.in(tensor.source ? tensor.source->replay(tensor.length) : memory);
  op.callBoxed(stack);
  return stack.back().toTensor();
}

TensorHistory::TensorHistory(std::size_t n_bytes, TensorPlace place, Origin origin)
    : n_bytes_(n_bytes), place_(std::move(place)), origin_(std::move(origin)) {}

c10::Storage TensorHistory::beginning() const {
  if (!origin_) return new_memory(n_bytes_);
  auto made = origin_();
  const bool is_in_place = made.scalar_type() == place_->dtype && made.storage_offset() == place_->offset &&
                           made.strides() == place_->strides && made.storage().nbytes() == n_bytes_;
  if (is_in_place && n_bytes_ < kSmallestMapping) return made.storage();
  auto memory = new_memory(n_bytes_);
  place_->in(memory).copy_(made);
  made.reset();
  ::malloc_trim(0);
  return memory;
}

std::size_t TensorHistory::first_that_matters(std::size_t length) const {
  while (length > 0 && !calls_[length - 1].overwrites) --length;
  return length > 0 ? length - 1 : 0;
}

c10::Storage TensorHistory::replay(std::size_t length) const {
  auto i = first_that_matters(length);
  const bool is_overwritten = i < length && calls_[i].overwrites;
  auto memory = is_overwritten ? new_memory(n_bytes_) : beginning();
  for (; i < length; ++i) calls_[i].run(memory);
  return memory;
}

}  // namespace lockstep::detail
