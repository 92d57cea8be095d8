// A tensor's memory, taken away and given back while the tensor stays the same object.
//
// The one file that relies on how LibTorch's StorageImpl is made inside (2.13; `docs/decisions/` says more).
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// Takes the memory of `tensor` away. Shape, strides and views stay; operators that only make views still
/// work. Whoever asks for its address is told `message` by an exception.
void release_memory(const at::Tensor& tensor, const std::string& message);

/// A dense tensor, row by row, in a storage of its own that has no memory.
at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device);

/// Lets `tensor` lie in the memory of `owner`, a flat tensor of the same dtype, from element `offset` on. The
/// memory lives as long as the tensor lies there. Versions do not change: autograd takes it for the same
/// data.
void attach_memory(const at::Tensor& tensor, const at::Tensor& owner, std::int64_t offset);

/// Whether the tensor fills a storage of its own from its beginning, densely and in row-major order.
bool owns_its_storage(const at::Tensor& tensor);

}  // namespace lockstep::detail
