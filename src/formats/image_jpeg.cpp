// JPEG by libjpeg-turbo: https://github.com/libjpeg-turbo/libjpeg-turbo (libjpeg.txt)
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <utility>

#include <jpeglib.h>  // needs cstdio before it

#include <jerror.h>  // needs jpeglib.h before it

#include "formats/image_decoders.h"

namespace lockstep::detail {
namespace {

struct Decoder {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf on_error{};
  std::array<char, JMSG_LENGTH_MAX> reason{};

  explicit Decoder(std::span<const std::byte> file) {
    jpeg.err = ::jpeg_std_error(&errors);
    errors.error_exit = &fail;
    errors.emit_message = &look_at;
    jpeg.client_data = this;
    ::jpeg_create_decompress(&jpeg);
    ::jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  }
  ~Decoder() { ::jpeg_destroy_decompress(&jpeg); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  [[noreturn]] static void fail(j_common_ptr jpeg) {
    auto& self = *static_cast<Decoder*>(jpeg->client_data);
    self.errors.format_message(jpeg, self.reason.data());
    std::longjmp(self.on_error, 1);
  }
  /// Handles warnings: those about missing pixels, which libjpeg would invent, are fatal, such as the end of
  /// a file that is cut short. Others, which every reader tolerates, such as superfluous bytes, are ignored.
  static void look_at(j_common_ptr jpeg, int level) {
    constexpr std::array kLostData{static_cast<int>(JWRN_JPEG_EOF), static_cast<int>(JWRN_HIT_MARKER),
                                   static_cast<int>(JWRN_HUFF_BAD_CODE),
                                   static_cast<int>(JWRN_ARITH_BAD_CODE), static_cast<int>(JWRN_MUST_RESYNC)};
    if (level < 0 && std::ranges::find(kLostData, jpeg->err->msg_code) != kLostData.end()) fail(jpeg);
  }
};

constexpr std::size_t kInks = 4;

// a * b / 255, rounded.
unsigned product(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// Converts CMYK to RGB as Pillow does. Files have the inks inverted, as Adobe writes them: 255 is no ink.
void convert_inks(const Raster& inks, Raster& rgb) {
  const auto* ink = inks.pixels.data();
  for (auto* pixel = rgb.pixels.data(); pixel != rgb.pixels.data() + rgb.pixels.size(); pixel += 3) {
    const unsigned light = ink[3];
    for (int i = 0; i < 3; ++i)
      pixel[i] = static_cast<std::uint8_t>(light - std::min(light, product(255U - ink[i], light)));
    ink += kInks;
  }
}

// Between setjmp and longjmp there must be no objects with destructors: so each step is a function of its
// own.

bool read_header(Decoder& decoder, Raster& raster) {
  auto& jpeg = decoder.jpeg;
  if (setjmp(decoder.on_error)) return false;
  ::jpeg_read_header(&jpeg, TRUE);
  if (jpeg.num_components == 3) jpeg.out_color_space = JCS_RGB;
  if (jpeg.num_components == kInks) jpeg.out_color_space = JCS_CMYK;  // of YCCK, too
  jpeg.mem->max_memory_to_use = 1L << 30;
  ::jpeg_calc_output_dimensions(&jpeg);
  raster.channels = static_cast<std::size_t>(jpeg.output_components);
  raster.height = jpeg.output_height;
  raster.width = jpeg.output_width;
  return true;
}

bool read_pixels(Decoder& decoder, JSAMPROW pixels, std::size_t row_bytes) {
  auto& jpeg = decoder.jpeg;
  if (setjmp(decoder.on_error)) return false;
  ::jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels + jpeg.output_scanline * row_bytes;
    ::jpeg_read_scanlines(&jpeg, &row, 1);
  }
  ::jpeg_finish_decompress(&jpeg);
  return true;
}

}  // namespace

Expected<Raster> decode_jpeg(std::span<const std::byte> file, std::uint64_t max_pixels) {
  Decoder decoder(file);
  const auto damaged = [&] { return Unexpected<>{std::string("a damaged JPEG: ") + decoder.reason.data()}; };
  Raster raster;
  if (!read_header(decoder, raster)) return damaged();
  if (auto reason = allocate(raster, max_pixels); !reason.empty()) return Unexpected{std::move(reason)};
  if (!read_pixels(decoder, raster.pixels.data(), raster.width * raster.channels)) return damaged();
  if (raster.channels != kInks) return raster;
  Raster rgb{.channels = 3, .height = raster.height, .width = raster.width, .pixels = {}};
  rgb.pixels.resize(rgb.height * rgb.width * rgb.channels);
  convert_inks(raster, rgb);
  return rgb;
}

}  // namespace lockstep::detail
