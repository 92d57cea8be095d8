// The pictures were written by Pillow 11; what they are compared with is what it reads from them.
#include <gmock/gmock.h>

#include <numeric>

#include <lockstep/formats/image.h>

#include "support/decoded_picture.h"

namespace lockstep {
namespace {

using test::bytes_of;
using test::decoded;
using test::picture;
using ::testing::HasSubstr;

int sum(const Image& image) { return std::accumulate(image.pixels.begin(), image.pixels.end(), 0); }

TEST(DecodePng, ReadsEveryKind) {
  const auto rgb = decoded("rgb.png", ImageMode::kRgb);
  EXPECT_EQ(rgb.height, 5);
  EXPECT_EQ(rgb.width, 7);
  ASSERT_EQ(rgb.channels, 3);
  for (std::size_t y = 0; y < 5; ++y) {
    for (std::size_t x = 0; x < 7; ++x) {
      ASSERT_EQ(rgb.pixels[7 * y + x], 36 * x);
      ASSERT_EQ(rgb.pixels[35 + 7 * y + x], 60 * y);
      ASSERT_EQ(rgb.pixels[70 + 7 * y + x], 20 * (x + y));
    }
  }
  EXPECT_EQ(decoded("rgb_alpha.png", ImageMode::kRgb).pixels, rgb.pixels);
  EXPECT_EQ(sum(decoded("rgb_alpha.png", ImageMode::kUnchanged)), 13160);
  EXPECT_EQ(sum(decoded("rgb.png", ImageMode::kGray)), 3997);
  EXPECT_EQ(sum(decoded("gray.png", ImageMode::kRgbAlpha)), 20265);
  EXPECT_EQ(decoded("gray16.png", ImageMode::kUnchanged).pixels,
            decoded("gray.png", ImageMode::kGray).pixels);
  EXPECT_EQ(sum(decoded("palette.png", ImageMode::kRgb)), 11480);
  EXPECT_EQ(sum(decoded("palette.png", ImageMode::kRgbAlpha)), 18875);
}

TEST(DecodePng, SaysWhatIsWrong) {
  auto file = picture("rgb.png");
  EXPECT_THAT(decode_image(bytes_of(file.substr(0, 60))).error(), HasSubstr("damaged PNG: cut short"));
  EXPECT_THAT(decode_image(bytes_of(file), {.max_pixels = 34}).error(),
              HasSubstr("7 x 5 pixels, more than 34"));
  file[45] = static_cast<char>(file[45] ^ 1);
  EXPECT_THAT(decode_image(bytes_of(file)).error(), HasSubstr("damaged PNG"));
}

}  // namespace
}  // namespace lockstep
