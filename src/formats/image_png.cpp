// PNG by libpng: http://www.libpng.org/pub/png/libpng-manual.txt
#include <png.h>

#include <array>
#include <csetjmp>
#include <cstring>
#include <utility>

#include "formats/image_decoders.h"

namespace lockstep::detail {
namespace {

struct Decoder {
  std::span<const std::byte> left;
  std::array<char, 128> reason{};
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit Decoder(std::span<const std::byte> file) : left(file) {
    png = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &fail, &ignore);
    if (png) info = ::png_create_info_struct(png);
    if (info) ::png_set_read_fn(png, this, &read);
  }
  ~Decoder() { ::png_destroy_read_struct(&png, &info, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  [[noreturn]] static void fail(png_structp png, png_const_charp text) {
    auto& reason = static_cast<Decoder*>(::png_get_error_ptr(png))->reason;
    std::strncpy(reason.data(), text, reason.size() - 1);
    ::png_longjmp(png, 1);
  }
  static void ignore(png_structp, png_const_charp) {}
  static void read(png_structp png, png_bytep to, std::size_t count) {
    auto& self = *static_cast<Decoder*>(::png_get_io_ptr(png));
    if (count > self.left.size()) ::png_error(png, "cut short");
    std::memcpy(to, self.left.data(), count);
    self.left = self.left.subspan(count);
  }
};

// Between setjmp and longjmp there must be no objects with destructors: so each step is a function of its
// own.

/// Reads what comes before the pixels, and asks for 8 bits per channel without a palette.
bool read_header(Decoder& decoder, Raster& raster) {
  if (setjmp(png_jmpbuf(decoder.png))) return false;
  ::png_read_info(decoder.png, decoder.info);
  ::png_set_expand(decoder.png);
  ::png_set_strip_16(decoder.png);
  ::png_set_interlace_handling(decoder.png);
  ::png_read_update_info(decoder.png, decoder.info);
  raster.channels = ::png_get_channels(decoder.png, decoder.info);
  raster.height = ::png_get_image_height(decoder.png, decoder.info);
  raster.width = ::png_get_image_width(decoder.png, decoder.info);
  return true;
}

bool read_pixels(Decoder& decoder, png_bytepp rows) {
  if (setjmp(png_jmpbuf(decoder.png))) return false;
  ::png_read_image(decoder.png, rows);
  ::png_read_end(decoder.png, nullptr);
  return true;
}

}  // namespace

Expected<Raster> decode_png(std::span<const std::byte> file, std::uint64_t max_pixels) {
  Decoder decoder(file);
  if (!decoder.info) return Unexpected{"libpng does not start"};
  const auto damaged = [&] { return Unexpected<>{std::string("a damaged PNG: ") + decoder.reason.data()}; };
  Raster raster;
  if (!read_header(decoder, raster)) return damaged();
  if (auto reason = allocate(raster, max_pixels); !reason.empty()) return Unexpected{std::move(reason)};
  std::vector<png_bytep> rows(raster.height);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = &raster.pixels[i * raster.width * raster.channels];
  if (!read_pixels(decoder, rows.data())) return damaged();
  return raster;
}

}  // namespace lockstep::detail
