#include "optim/page_memory.h"

#include <memory>
#include <new>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <c10/util/Exception.h>

#include "offload/aligned_buffer.h"

namespace lockstep::detail {
namespace {

// Of a huge page. What is smaller would share one with others.
constexpr std::uint64_t kLargeBytes = 2 << 20;

std::shared_ptr<offload::AlignedBuffer> pages(std::uint64_t bytes) {
  try {
    return std::make_shared<offload::AlignedBuffer>(bytes);
  } catch (const std::bad_alloc&) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "not enough memory for a tensor of ", bytes, " bytes");
  }
}

}  // namespace

at::Tensor zeros_in_pages(std::int64_t elements, at::ScalarType dtype) {
  const auto bytes = static_cast<std::uint64_t>(elements) * c10::elementSize(dtype);
  if (bytes < kLargeBytes) return at::zeros({elements}, dtype);
  const auto memory = pages(bytes);
  return at::from_blob(
      memory->bytes().data(), {elements}, [memory](void*) {}, dtype);
}

}  // namespace lockstep::detail
