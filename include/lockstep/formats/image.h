// Pictures from files: PNG, JPEG and netpbm's PGM and PPM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// A picture: 8 bits per channel, channel by channel.
struct Image {
  std::int64_t channels = 0;         ///< 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha
  std::int64_t height = 0;           ///< rows
  std::int64_t width = 0;            ///< pixels of a row
  std::vector<std::uint8_t> pixels;  ///< [channels, height, width]
};

/// The channels wanted; those of torchvision's ImageReadMode.
enum class ImageMode {
  kUnchanged,  ///< those of the file
  kGray,       ///< 1: ITU-R 601-2 luma, as Pillow's "L"
  kRgb,        ///< 3
  kRgbAlpha    ///< 4: opaque where the file has no alpha
};

/// How decode_image() decodes.
struct ImageOptions {
  ImageMode mode = ImageMode::kRgb;                 ///< the channels
  std::int64_t max_pixels = std::int64_t{1} << 27;  ///< a file that claims more is refused unread
};

/// Decodes the bytes of a whole file, whose format its first bytes tell. 16 bits per channel become 8 (PNG's
/// higher ones, others rounded); palettes become colours; alpha is dropped where `mode` has none. PNG and
/// JPEG need libpng and libjpeg. Thread-safe. Never throws for bad input; the reason says what is wrong.
LOCKSTEP_API Expected<Image> decode_image(std::span<const std::byte> file, const ImageOptions& options = {});

}  // namespace lockstep
