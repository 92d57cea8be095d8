// Tensors in pages of their own.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// A flat CPU tensor of zeros. A large one lies in huge pages, where the system has them: an optimizer walks
/// over its state in every step, and is as fast as addresses are translated. Its memory goes back to the
/// system with it. @throws c10::OutOfMemoryError
at::Tensor zeros_in_pages(std::int64_t elements, at::ScalarType dtype);

}  // namespace lockstep::detail
