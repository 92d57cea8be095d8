#include "optim/arena.h"

#include <memory>
#include <new>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "offload/io_engine.h"

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

namespace {

std::int64_t with_alignment(const at::Tensor& tensor, at::ScalarType dtype) {
  const auto alignment = kArenaAlignmentBytes / static_cast<std::int64_t>(c10::elementSize(dtype));
  return (tensor.numel() + alignment - 1) / alignment * alignment;
}

}  // namespace

std::int64_t arena_elements(std::span<const at::Tensor> like, at::ScalarType dtype) {
  std::int64_t elements = 0;
  for (const auto& tensor : like) elements += with_alignment(tensor, dtype);
  return elements;
}

std::vector<at::Tensor> carve(const at::Tensor& arena, std::span<const at::Tensor> like) {
  std::vector<at::Tensor> slices;
  std::int64_t start = 0;
  for (const auto& tensor : like) {
    slices.push_back(arena.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += with_alignment(tensor, arena.scalar_type());
  }
  return slices;
}

std::vector<at::Tensor> carve_arena(std::span<const at::Tensor> like, at::ScalarType dtype,
                                    at::Device device) {
  const auto elements = arena_elements(like, dtype);
  if (device.is_cpu()) return carve(zeros_in_pages(elements, dtype), like);
  return carve(at::zeros({elements}, at::TensorOptions(device).dtype(dtype)), like);
}

}  // namespace lockstep::detail
