// PGM and PPM, binary: https://netpbm.sourceforge.net/doc/ppm.html
#include <cstring>
#include <optional>
#include <utility>

#include "formats/image_decoders.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMaxNumber = 1 << 24;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The text of a header: numbers, white space and comments from # to the end of a line.
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const std::byte> file)
      : text_(reinterpret_cast<const char*>(file.data()), file.size()) {}

  std::optional<std::size_t> number() {
    skip_space();
    std::size_t value = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<std::size_t>(text_[at_] - '0');
      if (value > kMaxNumber) return std::nullopt;
    }
    return at_ > begin ? std::optional(value) : std::nullopt;
  }

  /// Behind the one byte of white space that ends a header.
  std::size_t end() const { return at_ + 1; }
  bool ends_well() const { return at_ < text_.size() && is_space(text_[at_]); }

 private:
  void skip_space() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size() - 1);
      if (!is_space(text_[at_])) return;
    }
  }

  std::string_view text_;
  std::size_t at_ = 2;  // behind the magic number
};

}  // namespace

Expected<Raster> decode_netpbm(std::span<const std::byte> file, std::uint64_t max_pixels) {
  HeaderReader header(file);
  const auto width = header.number();
  const auto height = header.number();
  const auto most = header.number();
  if (!width || !height || !most || !header.ends_well()) return Unexpected{"a damaged netpbm header"};
  if (*most != 255) return Unexpected{"a netpbm file of values up to " + std::to_string(*most) + ", not 255"};
  Raster raster{
      .channels = file[1] == std::byte{'6'} ? 3U : 1U, .height = *height, .width = *width, .pixels = {}};
  const auto data = file.subspan(header.end());
  const auto bytes = raster.channels * raster.height * raster.width;
  if (data.size() < bytes) {
    return Unexpected{"cut short: " + std::to_string(data.size()) + " of " + std::to_string(bytes) +
                      " bytes"};
  }
  if (auto reason = allocate(raster, max_pixels); !reason.empty()) return Unexpected{std::move(reason)};
  std::memcpy(raster.pixels.data(), data.data(), bytes);
  return raster;
}

}  // namespace lockstep::detail
