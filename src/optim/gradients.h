// Gradients as kernels are given them: of any type that they read. Free of torch.
#pragma once

#include <cstdint>

namespace lockstep::detail {

enum class GradientType { kFloat32, kFloat64, kBFloat16, kFloat16 };

/// Consecutive elements that somebody else owns.
struct Gradients {
  Gradients(const float* all) : elements(all), type(GradientType::kFloat32) {}
  Gradients(const double* all) : elements(all), type(GradientType::kFloat64) {}
  Gradients(const void* all, GradientType type_of_all) : elements(all), type(type_of_all) {}

  const void* elements;
  GradientType type;
};

}  // namespace lockstep::detail
