// The names that PyTorch gives to element types.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include <lockstep/formats/safetensors.h>

namespace lockstep::detail {

struct TorchDtype {
  safetensors::Dtype dtype;
  std::string_view name;     ///< "torch.float32"
  std::string_view storage;  ///< "torch.FloatStorage"; empty: PyTorch has no such type
};

std::span<const TorchDtype> torch_dtypes();

/// The dtype of that name, or nothing when PyTorch has none such (or one that we do not know).
std::optional<safetensors::Dtype> named_torch_dtype(std::string_view name);

/// The row of `dtype`.
const TorchDtype& torch_dtype(safetensors::Dtype dtype);

}  // namespace lockstep::detail
