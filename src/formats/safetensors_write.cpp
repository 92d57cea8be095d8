#include <algorithm>
#include <array>
#include <cstring>
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

[[noreturn]] void refuse(const TensorView& tensor, const std::string& why, const std::string& expected = "",
                         const std::string& got = "") {
  throw CheckpointError(
      "formats", {.what = "tensor " + shown(tensor.name) + " " + why, .expected = expected, .got = got});
}

void check_bytes(const TensorView& tensor) {
  std::size_t bytes = dtype_bytes(tensor.dtype);
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes)) {
      refuse(tensor, "has an impossible shape");
    }
  }
  if (bytes != tensor.bytes.size()) {
    refuse(tensor, "cannot be written", std::to_string(bytes) + " bytes for its shape and dtype",
           std::to_string(tensor.bytes.size()));
  }
}

void check(std::span<const TensorView> tensors) {
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    check_bytes(tensor);
    if (tensor.name == "__metadata__") refuse(tensor, "has a reserved name");
    if (!names.insert(tensor.name).second) refuse(tensor, "occurs twice");
  }
}

/// In the order of their data: the widest elements first, else as given.
std::vector<const TensorView*> by_alignment(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
  });
  return order;
}

/// The header of `tensors`, whose data follow it in the order `order`; padded to 8 bytes.
std::string header_text(std::span<const TensorView> tensors, std::span<const TensorView* const> order,
                        const Metadata& metadata) {
  std::map<const TensorView*, std::array<std::size_t, 2>> offsets;
  std::size_t end = 0;
  for (const TensorView* tensor : order) {
    const std::size_t begin = std::exchange(end, end + tensor->bytes.size());
    offsets[tensor] = {begin, end};
  }
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const TensorView& tensor : tensors) {
    header.get_ref<nlohmann::ordered_json::object_t&>().push_back(
        {tensor.name,
         {{"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", offsets[&tensor]}}});
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

void write(const std::filesystem::path& path, std::span<const TensorView> tensors,
           const Metadata& metadata) try {
  check(tensors);
  const auto order = by_alignment(tensors);
  const std::string header = header_text(tensors, order, metadata);
  const std::uint64_t length = header.size();
  write_file_atomically(path, [&](FileWriter& file) {
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(header);
    for (const TensorView* tensor : order) file.write(tensor->bytes);
  });
} catch (const nlohmann::json::exception& error) {
  throw CheckpointError("formats", {.what = "a name or the metadata of '" + path.string() + "' is not UTF-8",
                                    .got = error.what()});
}

}  // namespace lockstep::safetensors
