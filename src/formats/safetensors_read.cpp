// Reads safetensors files.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/formats/safetensors.h>

#include "formats/file_text.h"
#include "formats/safetensors_header.h"

namespace lockstep::safetensors {
namespace {

using detail::Header;
using detail::HeaderEntry;
using detail::shown;

constexpr std::size_t kLengthBytes = 8;

/// The header's JSON text, or why there can be none.
Expected<std::string_view> header_text(std::span<const std::byte> file) {
  std::uint64_t length = 0;
  if (file.size() < kLengthBytes)
    return Unexpected{std::to_string(file.size()) + " bytes are too few for a header"};
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    return Unexpected{"header length " + std::to_string(length) + " is over the limit"};
  if (length > file.size() - kLengthBytes) {
    return Unexpected{"header length " + std::to_string(length) + " exceeds the file"};
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) return Unexpected{"header does not start with {"};
  return text;
}

/// Bytes that dtype and shape ask for; nothing when they overflow.
std::optional<std::uint64_t> bytes_of(Dtype dtype, std::span<const std::uint64_t> shape) {
  std::uint64_t bytes = dtype_bytes(dtype);
  for (const std::uint64_t extent : shape) {
    if (extent > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

Expected<TensorView> tensor_view(const HeaderEntry& entry, std::span<const std::byte> data) {
  const auto refuse = [&](const std::string& why) {
    return Unexpected{"tensor " + shown(entry.name) + " " + why};
  };
  const auto dtype = dtype_named(entry.dtype);
  if (entry.dtype.starts_with("F6_"))
    return refuse("has the dtype " + shown(entry.dtype) + ", which LibTorch has not");
  if (!dtype || !is_of_format(*dtype)) return refuse("has the unknown dtype " + shown(entry.dtype));
  if (entry.data_offsets.size() != 2) return refuse("has no pair of data_offsets");
  const std::uint64_t begin = entry.data_offsets[0];
  const std::uint64_t end = entry.data_offsets[1];
  if (begin > end || end > data.size()) {
    return refuse("lies outside the file: bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                  " of " + std::to_string(data.size()));
  }
  auto shape = entry.shape;
  if (*dtype == Dtype::kF4x2) {
    if (shape.empty() || shape.back() % 2 != 0)
      return refuse("is of F4 in an odd number, which LibTorch has in pairs only");
    shape.back() /= 2;
  }
  if (bytes_of(*dtype, shape) != end - begin) {
    return refuse("has " + std::to_string(end - begin) + " bytes, which its shape and dtype do not need");
  }
  return TensorView{.name = entry.name,
                    .dtype = *dtype,
                    .shape = {shape.begin(), shape.end()},
                    .bytes = data.subspan(begin, end - begin)};
}

/// Why the tensors do not fill `data` one after the other, or an empty string.
std::string gap_or_overlap(const std::vector<TensorView>& tensors, std::span<const std::byte> data) {
  std::vector<const TensorView*> by_place;
  for (const TensorView& tensor : tensors) by_place.push_back(&tensor);
  std::sort(by_place.begin(), by_place.end(), [](const TensorView* a, const TensorView* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte* expected = data.data();
  for (const TensorView* tensor : by_place) {
    if (tensor->bytes.data() > expected) return "there is a hole before tensor " + shown(tensor->name);
    if (tensor->bytes.data() < expected) return "tensor " + shown(tensor->name) + " overlaps another one";
    expected += tensor->bytes.size();
  }
  if (expected == data.data() + data.size()) return {};
  return std::to_string(data.data() + data.size() - expected) + " bytes follow the last tensor";
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::span<const std::byte> bytes,
                         const std::string& reason) {
  const auto start = bytes.first(std::min(bytes.size(), lockstep::detail::kForeignStartBytes));
  const auto foreign =
      lockstep::detail::foreign_file({reinterpret_cast<const char*>(start.data()), start.size()});
  throw CheckpointError("formats", {.what = "'" + path.string() + "' is no safetensors file or is damaged",
                                    .got = foreign ? std::string(foreign->what) : reason,
                                    .hint = foreign ? std::string(foreign->hint) : std::string()});
}

}  // namespace

Expected<Contents> parse(std::span<const std::byte> file) {
  const auto text = header_text(file);
  if (!text) return Unexpected{text.error()};
  auto header = detail::parse_header(*text);
  if (!header) return Unexpected{header.error()};
  const auto data = file.subspan(kLengthBytes + text->size());
  Contents contents{.tensors = {}, .metadata = std::move(header->metadata)};
  for (const HeaderEntry& entry : header->entries) {
    auto tensor = tensor_view(entry, data);
    if (!tensor) return Unexpected{tensor.error()};
    contents.tensors.push_back(std::move(*tensor));
  }
  if (auto reason = gap_or_overlap(contents.tensors, data); !reason.empty()) return Unexpected{reason};
  return contents;
}

File::File(std::filesystem::path path, MappedFile mapping, Contents contents)
    : path_(std::move(path)), mapping_(std::move(mapping)), contents_(std::move(contents)) {
  for (std::size_t i = 0; i < tensors().size(); ++i) index_.emplace(tensors()[i].name, i);
}

Expected<File> File::open(const std::filesystem::path& path) {
  MappedFile mapping(path);
  auto contents = parse(mapping.bytes());
  if (!contents) return Unexpected{contents.error()};
  return File(path, std::move(mapping), std::move(*contents));
}

File::File(const std::filesystem::path& path)
    : File([&] {
        MappedFile mapping(path);
        auto contents = parse(mapping.bytes());
        if (contents) return File(path, std::move(mapping), std::move(*contents));
        refuse(path, mapping.bytes(), contents.error());
      }()) {}

const TensorView* File::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors()[found->second];
}

const TensorView& File::at(std::string_view name) const {
  if (const TensorView* tensor = find(name)) return *tensor;
  throw CheckpointError("formats", {.what = "no tensor " + shown(name) + " in '" + path_.string() + "'",
                                    .expected = "one of " + listed_names()});
}

std::string File::listed_names() const {
  constexpr std::size_t kListed = 8;
  if (tensors().empty()) return "no tensors";
  std::string names;
  for (const TensorView& tensor : std::span(tensors()).first(std::min(kListed, tensors().size()))) {
    names += (names.empty() ? "" : ", ") + shown(tensor.name);
  }
  return names + (tensors().size() > kListed ? ", ..." : "");
}

}  // namespace lockstep::safetensors
