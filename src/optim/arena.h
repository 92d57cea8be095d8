// Optimizer state lies side by side in few allocations, every tensor on its own cache lines.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::detail {

/// Every tensor of an arena starts at a multiple of this.
inline constexpr std::int64_t kArenaAlignmentBytes = 64;

/// Elements of `dtype` that an arena of tensors in the shape of each of `like` has.
std::int64_t arena_elements(std::span<const at::Tensor> like, at::ScalarType dtype);

/// Slices of `arena`, flat, in the shape of each of `like`.
std::vector<at::Tensor> carve(const at::Tensor& arena, std::span<const at::Tensor> like);

/// Contiguous zeros in the shape of each of `like`, all in one allocation. CPU.
std::vector<at::Tensor> carve_arena(std::span<const at::Tensor> like, at::ScalarType dtype);

}  // namespace lockstep::detail
