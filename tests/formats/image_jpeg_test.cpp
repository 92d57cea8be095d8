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
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::uint8_t> first_row(const Image& image) {
  return {image.pixels.begin(), image.pixels.begin() + image.width};
}

TEST(DecodeJpeg, ReadsWhatPillowReads) {
  const auto rgb = decoded("rgb.jpg", ImageMode::kUnchanged);
  EXPECT_EQ(rgb.channels, 3);
  EXPECT_EQ(rgb.height, 5);
  EXPECT_THAT(first_row(rgb), ElementsAre(0, 17, 54, 89, 124, 157, 189));
  EXPECT_EQ(std::accumulate(rgb.pixels.begin(), rgb.pixels.end(), 0), 11501);
  EXPECT_THAT(first_row(decoded("rgb.jpg", ImageMode::kGray)), ElementsAre(3, 13, 26, 39, 51, 66, 78));
  EXPECT_THAT(first_row(decoded("progressive.jpg", ImageMode::kRgb)),
              ElementsAre(0, 8, 44, 79, 118, 152, 179));
  const auto grey = decoded("gray.jpg", ImageMode::kUnchanged);
  EXPECT_EQ(grey.channels, 1);
  EXPECT_THAT(first_row(grey), ElementsAre(0, 36, 72, 108, 144, 180, 216));
}

TEST(DecodeJpeg, SaysWhatIsWrong) {
  const auto file = picture("rgb.jpg");
  EXPECT_THAT(decode_image(bytes_of(file.substr(0, 640))).error(), HasSubstr("damaged JPEG: Premature end"));
  EXPECT_THAT(decode_image(bytes_of(file.substr(0, 100))).error(), HasSubstr("damaged JPEG"));
  EXPECT_THAT(decode_image(bytes_of(file), {.max_pixels = 34}).error(), HasSubstr("7 x 5 pixels"));
}

}  // namespace
}  // namespace lockstep
