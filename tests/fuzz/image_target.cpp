#include <lockstep/formats/image.h>

#include "fuzz/target.h"
#include "support/image_text.h"

namespace lockstep::fuzz {
namespace {

using namespace std::string_literals;

constexpr std::int64_t kMaxPixels = 1 << 12;

void run_image(std::span<const std::byte> input) {
  const auto image = decode_image(input, {.mode = ImageMode::kUnchanged, .max_pixels = kMaxPixels});
  if (!image) return expect(!image.error().empty(), "gave no reason");
  expect(image->height * image->width <= kMaxPixels, "gave more pixels than it may");
  const auto pixels = static_cast<std::size_t>(image->channels * image->height * image->width);
  expect(pixels > 0 && image->pixels.size() == pixels, "gave pixels that are not of its shape");
}

}  // namespace

Target image_target() {
  return {
      .name = "image",
      .seeds = {"P6\n# c\n2 1\n255\nabcdef", "P5 2 2 255 abcd", test::picture("rgb.png"),
                test::picture("palette.png"), test::picture("rgb.jpg"), test::picture("progressive.jpg")},
      .tokens = {"P5", "P6", " ", "#", "\n", "255", "1", "16777216", "IHDR", "PLTE", "tRNS", "IDAT", "IEND",
                 "\xff\xd8\xff"s, "\xff\xc0"s, "\xff\xda"s, "\xff\xd9"s, "\0\0\0\x0d"s, "\xff\xff"s},
      .memory_bytes = std::size_t{1} << 16,  // two rasters; libpng and libjpeg have memory of their own
      .memory_per_byte = 4,
      .run = run_image};
}

}  // namespace lockstep::fuzz
