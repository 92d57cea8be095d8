// Where kernels write float32 in 16 bits. Free of torch.
#pragma once

namespace lockstep::detail {

enum class NarrowType { kBFloat16, kFloat16 };

/// Consecutive elements that somebody else owns; null: none are wanted.
struct NarrowElements {
  void* elements = nullptr;
  NarrowType type = NarrowType::kBFloat16;
};

}  // namespace lockstep::detail
