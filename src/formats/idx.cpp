#include <lockstep/formats/idx.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/base/error.h>

#include "formats/gzip_file.h"

namespace lockstep::idx {
namespace {

constexpr std::size_t kMagicBytes = 4;  // 0, 0, type, number of dimensions
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

bool is_known(std::uint8_t code) { return code == 0x08 || code == 0x09 || (code >= 0x0B && code <= 0x0E); }

/// A source that is read from front to back: read() fills its argument, less at the end, and returns the
/// number of bytes.
template <class Source>
class Reader {
 public:
  explicit Reader(Source& source) : source_(source) {}

  Expected<Array> read() {
    if (auto reason = take_magic(); !reason.empty()) return Unexpected{std::move(reason)};
    if (auto reason = take_shape(); !reason.empty()) return Unexpected{std::move(reason)};
    if (auto reason = take_elements(); !reason.empty()) return Unexpected{std::move(reason)};
    std::byte more{};
    if (source_(std::span(&more, 1)) != 0) return Unexpected{"bytes after the last element"};
    return std::move(array_);
  }

 private:
  std::string take_magic() {
    std::array<std::byte, kMagicBytes> magic{};
    if (source_(magic) != magic.size()) return "fewer than 4 bytes";
    const auto code = std::to_integer<std::uint8_t>(magic[2]);
    if (magic[0] != std::byte{0} || magic[1] != std::byte{0} || !is_known(code)) return "no IDX file";
    dimensions_ = std::to_integer<std::size_t>(magic[3]);
    if (dimensions_ == 0) return "an array without dimensions";
    array_.dtype = static_cast<Dtype>(code);
    return {};
  }

  std::string take_shape() {
    bytes_ = item_bytes(array_.dtype);
    std::uint64_t span = bytes_;  // of an empty array, too: its strides have to be numbers
    for (std::size_t i = 0; i < dimensions_; ++i) {
      std::array<std::byte, 4> extent{};
      if (source_(extent) != extent.size()) return "cut short within its shape";
      std::uint64_t value = 0;
      for (const std::byte byte : extent) value = value << 8 | std::to_integer<std::uint64_t>(byte);
      array_.shape.push_back(static_cast<std::int64_t>(value));
      if (__builtin_mul_overflow(span, std::max<std::uint64_t>(value, 1), &span) || span > kMostBytes)
        return "a shape of more than 2^63 bytes";
      bytes_ *= value;
    }
    return {};
  }

  std::string take_elements() {
    while (array_.bytes.size() < bytes_) {
      const std::size_t had = array_.bytes.size();
      array_.bytes.resize(std::min<std::size_t>(bytes_, had + kBlockBytes));
      const std::size_t got = source_(std::span(array_.bytes).subspan(had));
      if (had + got < array_.bytes.size()) {
        return "cut short: " + std::to_string(had + got) + " of " + std::to_string(bytes_) + " bytes";
      }
    }
    order_bytes();
    return {};
  }

  void order_bytes() {  // files have the highest first
    const std::size_t item = item_bytes(array_.dtype);
    for (auto at = array_.bytes.begin(); item > 1 && at != array_.bytes.end();
         at += static_cast<std::ptrdiff_t>(item)) {
      std::reverse(at, at + static_cast<std::ptrdiff_t>(item));
    }
  }

  Source& source_;
  Array array_;
  std::size_t dimensions_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::size_t item_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt16:
      return 2;
    case Dtype::kInt32:
    case Dtype::kFloat32:
      return 4;
    case Dtype::kFloat64:
      return 8;
    default:
      return 1;
  }
}

Expected<Array> parse(std::span<const std::byte> file) {
  auto source = [&](std::span<std::byte> to) {
    const std::size_t count = std::min(to.size(), file.size());
    std::copy_n(file.begin(), count, to.begin());
    file = file.subspan(count);
    return count;
  };
  return Reader(source).read();
}

Array read(const std::filesystem::path& path) {
  detail::GzipFile file(path);
  auto source = [&](std::span<std::byte> to) {
    return file.read({reinterpret_cast<char*>(to.data()), to.size()});
  };
  auto array = Reader(source).read();
  if (array) return std::move(*array);
  throw DataError("formats", {.what = "'" + path.string() + "' cannot be read as IDX", .got = array.error()});
}

}  // namespace lockstep::idx
