// Conversions between tensors and the bytes of safetensors files.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep {

/// The file format's dtype of an element type. @throws CheckpointError for types that have no bytes
/// of their own: quantised ones, bits, integers of less than a byte
LOCKSTEP_API safetensors::Dtype safetensors_dtype(at::ScalarType type);

/// The element type of a file's dtype.
LOCKSTEP_API at::ScalarType scalar_type(safetensors::Dtype dtype);

/// The values of `tensor` as they are written: contiguous, on the CPU, without a pending change of sign
/// or conjugation. Itself where it is like that.
LOCKSTEP_API at::Tensor stored_form(const at::Tensor& tensor);

/// `tensor`, contiguous and on the CPU, as the file format takes it; borrows its bytes.
LOCKSTEP_API safetensors::TensorView view_of(std::string name, const at::Tensor& tensor);

/// A copy of the bytes of `view` as a tensor on the CPU.
LOCKSTEP_API at::Tensor tensor_of(const safetensors::TensorView& view);

}  // namespace lockstep
