// Writes safetensors files, with the checksums of their bytes.
#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/formats/safetensors.h>

#include <nlohmann/json.hpp>

#include "formats/safetensors_header.h"

namespace lockstep::safetensors {
namespace {

using detail::shown;

[[noreturn]] void refuse(const std::string& tensor, const std::string& why, const std::string& expected = "",
                         const std::string& got = "") {
  throw CheckpointError("formats",
                        {.what = "tensor " + shown(tensor) + " " + why, .expected = expected, .got = got});
}

void check(std::span<const TensorHead> tensors) {
  std::set<std::string_view> names;
  for (const TensorHead& tensor : tensors) {
    if (!is_of_format(tensor.dtype))
      refuse(tensor.name, "cannot be written", "an element type that safetensors files have",
             std::string(lockstep::detail::torch_dtype(tensor.dtype).name));
    const auto bytes = bytes_of_shape(tensor.name, tensor.dtype, tensor.shape);
    if (bytes != tensor.bytes) {
      refuse(tensor.name, "cannot be written", std::to_string(bytes) + " bytes for its shape and dtype",
             std::to_string(tensor.bytes));
    }
    if (tensor.name == "__metadata__") refuse(tensor.name, "has a reserved name");
    if (!names.insert(tensor.name).second) refuse(tensor.name, "occurs twice");
  }
}

/// In the order of their data: the widest elements first, else as given.
std::vector<std::size_t> by_alignment(std::span<const TensorHead> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t number) { return dtype_bytes(tensors[number].dtype); });
  return order;
}

std::vector<std::int64_t> shape_in_header(const TensorHead& tensor) {
  auto shape = tensor.shape;
  if (tensor.dtype == Dtype::kF4x2 &&
      (shape.empty() || __builtin_mul_overflow(shape.back(), 2, &shape.back())))
    refuse(tensor.name, "cannot be written", "a last dimension of pairs of F4", "none");
  return shape;
}

/// The header as text, padded to 8 bytes; `offsets` are from the first tensor's byte on.
std::string header_text(std::span<const TensorHead> tensors, std::span<const std::uint64_t> offsets,
                        const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::array data_offsets{offsets[i], offsets[i] + tensors[i].bytes};
    header.get_ref<nlohmann::ordered_json::object_t&>().push_back({tensors[i].name,
                                                                   {{"dtype", dtype_name(tensors[i].dtype)},
                                                                    {"shape", shape_in_header(tensors[i])},
                                                                    {"data_offsets", data_offsets}}});
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

std::size_t bytes_of_shape(const std::string& name, Dtype dtype, const std::vector<std::int64_t>& shape) {
  std::size_t bytes = dtype_bytes(dtype);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes)) {
      refuse(name, "has an impossible shape");
    }
  }
  return bytes;
}

TensorView in_format(TensorView tensor) {
  const bool is_half_a_byte =
      tensor.dtype == Dtype::kF4x2 && tensor.shape.empty();  // has no last dimension to say so
  if (is_of_format(tensor.dtype) && !is_half_a_byte) return tensor;
  const bool is_complex = tensor.dtype == Dtype::kC128 || tensor.dtype == Dtype::kC32;
  tensor.dtype = tensor.dtype == Dtype::kC128 ? Dtype::kF64 : is_complex ? Dtype::kF16 : Dtype::kU8;
  if (is_complex) tensor.shape.push_back(2);
  return tensor;
}

Layout layout_of(std::span<const TensorHead> tensors, const Metadata& metadata) try {
  check(tensors);
  Layout layout{.head = {}, .order = by_alignment(tensors), .offsets = {}};
  layout.offsets.resize(tensors.size());
  for (const std::size_t number : layout.order) {
    layout.offsets[number] = std::exchange(layout.file_bytes, layout.file_bytes + tensors[number].bytes);
  }
  const auto text = header_text(tensors, layout.offsets, metadata);
  const std::uint64_t length = text.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), sizeof length).append(text);
  layout.file_bytes += layout.head.size();
  for (auto& offset : layout.offsets) offset += layout.head.size();
  return layout;
} catch (const nlohmann::json::exception& error) {
  throw CheckpointError("formats",
                        {.what = "a tensor's name or the metadata is not UTF-8", .got = error.what()});
}

Layout layout_of(std::span<const TensorView> tensors, const Metadata& metadata) {
  std::vector<TensorHead> heads;
  for (const TensorView& tensor : tensors)
    heads.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
  return layout_of(heads, metadata);
}

void write(const std::filesystem::path& path, std::span<const TensorView> tensors, const Metadata& metadata) {
  const auto layout = layout_of(tensors, metadata);
  write_file_atomically(path, [&](FileWriter& file) {
    file.write(layout.head);
    for (const std::size_t number : layout.order) file.write(tensors[number].bytes);
  });
}

}  // namespace lockstep::safetensors
