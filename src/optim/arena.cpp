#include "optim/arena.h"

#include <ATen/ops/zeros.h>

namespace lockstep::detail {

std::vector<at::Tensor> carve_arena(std::span<const at::Tensor> like, at::ScalarType dtype) {
  const auto alignment = kArenaAlignmentBytes / static_cast<std::int64_t>(c10::elementSize(dtype));
  std::vector<std::int64_t> starts;
  std::int64_t size = 0;
  for (const auto& tensor : like) {
    starts.push_back(size);
    size += (tensor.numel() + alignment - 1) / alignment * alignment;
  }
  const auto flat = at::zeros({size}, dtype);
  std::vector<at::Tensor> slices;
  for (std::size_t i = 0; i < like.size(); ++i) {
    slices.push_back(flat.narrow(0, starts[i], like[i].numel()).view(like[i].sizes()));
  }
  return slices;
}

}  // namespace lockstep::detail
