// Memory of optimizer state: tensors side by side in few allocations, every one on its own cache lines, and
// in pages of their own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// A flat CPU tensor of zeros. A large one lies in huge pages, where the system has them: an optimizer walks
/// over its state in every step, and is as fast as addresses are translated. Its memory goes back to the
/// system with it. @throws c10::OutOfMemoryError
at::Tensor zeros_in_pages(std::int64_t elements, at::ScalarType dtype);

/// Every tensor of an arena starts at a multiple of this.
inline constexpr std::int64_t kArenaAlignmentBytes = 64;

/// Elements of `dtype` that an arena of tensors in the shape of each of `like` has.
std::int64_t arena_elements(std::span<const at::Tensor> like, at::ScalarType dtype);

/// Slices of `arena`, flat, in the shape of each of `like`.
std::vector<at::Tensor> carve(const at::Tensor& arena, std::span<const at::Tensor> like);

/// Contiguous zeros in the shape of each of `like`, all in one allocation.
std::vector<at::Tensor> carve_arena(std::span<const at::Tensor> like, at::ScalarType dtype,
                                    at::Device device = at::kCPU);

}  // namespace lockstep::detail
