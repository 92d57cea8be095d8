// The JSON header of a safetensors file, the layout of a file that is to be written, and the names that
// PyTorch gives to its element types.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep::safetensors::detail {

/// The entry of one tensor in the header.
struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> data_offsets;
};

struct Header {
  std::vector<HeaderEntry> entries;
  Metadata metadata;
};

/// Reads the JSON text: its form (which keys, which types, no key twice), not what the numbers mean.
/// Memory and time are proportional to the text, however it is nested.
Expected<Header> parse_header(std::string_view json);

/// `name` for a message: in quotes, cut when it is long.
std::string shown(std::string_view name);

}  // namespace lockstep::safetensors::detail

namespace lockstep::safetensors {

/// A tensor without its bytes.
struct TensorHead {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
};

/// Bytes of a tensor of that shape. @throws CheckpointError naming it when there cannot be one
LOCKSTEP_API std::size_t bytes_of_shape(const std::string& name, Dtype dtype,
                                        const std::vector<std::int64_t>& shape);

/// `tensor` as the format can hold it: itself, or its bytes as numbers that the format has. Complex numbers
/// that it has not become two real ones in a last dimension of their own.
LOCKSTEP_API TensorView in_format(TensorView tensor);

struct Layout {
  std::string head;                    ///< the bytes before the tensors'
  std::vector<std::size_t> order;      ///< the numbers of the tensors as their bytes follow
  std::vector<std::uint64_t> offsets;  ///< of each tensor's first byte, from the file's begin
  std::uint64_t file_bytes = 0;
};

/// The layout that write() gives `tensors`. @throws CheckpointError as write()
LOCKSTEP_API Layout layout_of(std::span<const TensorView> tensors, const Metadata& metadata = {});
LOCKSTEP_API Layout layout_of(std::span<const TensorHead> tensors, const Metadata& metadata = {});

}  // namespace lockstep::safetensors

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
