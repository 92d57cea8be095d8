#include <lockstep/formats/image.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "formats/file_text.h"
#include "formats/image_decoders.h"

namespace lockstep {
namespace {

using detail::Raster;

bool begins_with(std::span<const std::byte> file, std::string_view magic) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  return text.starts_with(magic);
}

struct OtherPicture {
  std::size_t at;
  std::string_view mark;
  std::string_view name;
};

constexpr OtherPicture kOtherPictures[] = {
    {0, "GIF8", "a GIF picture"},        {8, "WEBP", "a WebP picture"},
    {0, "BM", "a BMP picture"},          {0, {"II*\0", 4}, "a TIFF picture"},
    {0, {"MM\0*", 4}, "a TIFF picture"}, {4, "ftypavif", "an AVIF picture"},
    {4, "ftyphei", "a HEIC picture"},    {4, "ftypmif1", "a HEIC picture"},
    {4, "jP  ", "a JPEG 2000 picture"},  {0, "<svg", "an SVG picture"},
    {0, "P1", "a PBM picture"},          {0, "P4", "a PBM picture"},
    {0, "P2", "a PGM of text"},          {0, "P3", "a PPM of text"},
    {0, "P7", "a PAM picture"},          {0, "8BPS", "a Photoshop file"},
};

// What a file is that is no picture of a known format; empty where that is not known either.
std::string_view kind_of(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.empty()) return "an empty file";
  const auto start = text.substr(0, detail::kForeignStartBytes);
  const auto* found = std::ranges::find_if(kOtherPictures, [&](const OtherPicture& one) {
    return start.substr(std::min(one.at, start.size())).starts_with(one.mark);
  });
  if (found != std::end(kOtherPictures)) return found->name;
  const auto foreign = detail::foreign_file(start);
  return foreign ? foreign->what : std::string_view();
}

Expected<Raster> decode(std::span<const std::byte> file, std::uint64_t max_pixels) {
  if (begins_with(file, "\x89PNG\r\n\x1a\n")) return detail::decode_png(file, max_pixels);
  if (begins_with(file, "\xff\xd8\xff")) return detail::decode_jpeg(file, max_pixels);
  if (begins_with(file, "P5") || begins_with(file, "P6")) return detail::decode_netpbm(file, max_pixels);
  const auto kind = kind_of(file);
  return Unexpected{"neither PNG nor JPEG nor binary PGM or PPM" +
                    (kind.empty() ? std::string() : ", but " + std::string(kind))};
}

std::size_t channels_of(ImageMode mode, const Raster& raster) {
  switch (mode) {
    case ImageMode::kGray:
      return 1;
    case ImageMode::kRgb:
      return 3;
    case ImageMode::kRgbAlpha:
      return 4;
    default:
      return raster.channels;
  }
}

/// Channel `channel` of `wanted` of one pixel with `raster.channels` of them.
std::uint8_t value(const std::uint8_t* pixel, std::size_t has, std::size_t wanted, std::size_t channel) {
  const bool is_alpha = wanted % 2 == 0 && channel == wanted - 1;
  if (is_alpha) return has % 2 == 0 ? pixel[has - 1] : 255;
  if (has <= 2) return pixel[0];
  if (wanted > 2) return pixel[channel];
  return static_cast<std::uint8_t>((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
}

Image converted(const Raster& raster, ImageMode mode) {
  const std::size_t channels = channels_of(mode, raster);
  const std::size_t plane = raster.height * raster.width;
  Image image{.channels = static_cast<std::int64_t>(channels),
              .height = static_cast<std::int64_t>(raster.height),
              .width = static_cast<std::int64_t>(raster.width),
              .pixels = std::vector<std::uint8_t>(channels * plane)};
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t i = 0; i < plane; ++i) {
      image.pixels[channel * plane + i] =
          value(&raster.pixels[i * raster.channels], raster.channels, channels, channel);
    }
  }
  return image;
}

}  // namespace

std::string detail::allocate(Raster& raster, std::uint64_t max_pixels) {
  if (raster.width == 0 || raster.height == 0) return "no pixels";
  if (raster.width > max_pixels / raster.height) {
    return std::to_string(raster.width) + " x " + std::to_string(raster.height) + " pixels, more than " +
           std::to_string(max_pixels);
  }
  raster.pixels.resize(raster.channels * raster.height * raster.width);
  return {};
}

Expected<Image> decode_image(std::span<const std::byte> file, const ImageOptions& options) {
  const auto raster = decode(file, static_cast<std::uint64_t>(std::max<std::int64_t>(options.max_pixels, 0)));
  if (!raster) return Unexpected{raster.error()};
  return converted(*raster, options.mode);
}

}  // namespace lockstep

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

namespace {

constexpr std::size_t kMostOfNetpbm = 65'535;

// Brings values of 0 to `most`, of which those above 255 take two bytes, to 0 to 255, rounded as Pillow does.
void spread(std::span<const std::byte> values, std::size_t most, std::span<std::uint8_t> pixels) {
  const bool is_wide = most > 255;
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(values[i]); };
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const unsigned value = is_wide ? at(2 * i) << 8 | at(2 * i + 1) : at(i);
    const double scaled = std::nearbyint(value / static_cast<double>(most) * 255);
    pixels[i] = static_cast<std::uint8_t>(std::min(scaled, 255.0));
  }
}

}  // namespace

Expected<Raster> decode_netpbm(std::span<const std::byte> file, std::uint64_t max_pixels) {
  HeaderReader header(file);
  const auto width = header.number();
  const auto height = header.number();
  const auto most = header.number();
  if (!width || !height || !most || !header.ends_well()) return Unexpected{"a damaged netpbm header"};
  if (*most == 0 || *most > kMostOfNetpbm)
    return Unexpected{"a netpbm file of values up to " + std::to_string(*most) + ", not 1 to 65535"};
  Raster raster{
      .channels = file[1] == std::byte{'6'} ? 3U : 1U, .height = *height, .width = *width, .pixels = {}};
  const auto data = file.subspan(header.end());
  const std::size_t bytes_of_value = *most > 255 ? 2 : 1;
  const auto bytes = raster.channels * raster.height * raster.width * bytes_of_value;
  if (data.size() < bytes) {
    return Unexpected{"cut short: " + std::to_string(data.size()) + " of " + std::to_string(bytes) +
                      " bytes"};
  }
  if (auto reason = allocate(raster, max_pixels); !reason.empty()) return Unexpected{std::move(reason)};
  if (*most == 255) {
    std::memcpy(raster.pixels.data(), data.data(), bytes);
  } else {
    spread(data.first(bytes), *most, raster.pixels);
  }
  return raster;
}

}  // namespace lockstep::detail
