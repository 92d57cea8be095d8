#include "optim/arena.h"

#include "optim/page_memory.h"

namespace lockstep::detail {
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

std::vector<at::Tensor> carve_arena(std::span<const at::Tensor> like, at::ScalarType dtype) {
  return carve(zeros_in_pages(arena_elements(like, dtype), dtype), like);
}

}  // namespace lockstep::detail
