// The decoders behind decode_image(), one for each format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/expected.h>

namespace lockstep::detail {

/// Pixels as in files, with the channels of a pixel beside each other.
struct Raster {
  std::size_t channels = 0;  ///< 1 to 4
  std::size_t height = 0;
  std::size_t width = 0;
  std::vector<std::uint8_t> pixels;  ///< [height, width, channels]
};

/// Allocates the pixels of a picture of that size; returns the reason where it is too large, empty otherwise.
std::string allocate(Raster& raster, std::uint64_t max_pixels);

Expected<Raster> decode_netpbm(std::span<const std::byte> file, std::uint64_t max_pixels);
Expected<Raster> decode_png(std::span<const std::byte> file, std::uint64_t max_pixels);
Expected<Raster> decode_jpeg(std::span<const std::byte> file, std::uint64_t max_pixels);

}  // namespace lockstep::detail
