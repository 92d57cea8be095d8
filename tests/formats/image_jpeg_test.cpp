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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(DecodeJpeg, ReadsInksAsPillowDoes) {
  const auto cmyk = decoded("cmyk.jpg", ImageMode::kUnchanged);
  EXPECT_EQ(cmyk.channels, 3);
  EXPECT_THAT(first_row(cmyk), ElementsAre(255, 219, 183, 147, 111, 75, 39));
  EXPECT_EQ(std::accumulate(cmyk.pixels.begin(), cmyk.pixels.end(), 0), 11845);
  // The same scan as YCCK, as the byte of Adobe's marker says.
  auto file = picture("cmyk.jpg");
  file.at(file.find("Adobe") + 11) = 2;
  const auto ycck = decode_image(bytes_of(file), {.mode = ImageMode::kRgb});
  ASSERT_TRUE(ycck) << ycck.error();
  EXPECT_THAT(first_row(*ycck), ElementsAre(0, 0, 0, 0, 0, 2, 38));
  EXPECT_EQ(std::accumulate(ycck->pixels.begin(), ycck->pixels.end(), 0), 11183);
}

TEST(DecodeJpeg, ForgivesWhatLosesNoPixels) {
  const auto whole = decoded("rgb.jpg", ImageMode::kUnchanged);
  auto revised = picture("rgb.jpg");
  revised.at(revised.find("JFIF") + 5) = 2;  // a revision that nobody knows
  auto longer = picture("rgb.jpg");
  longer.insert(longer.size() - 2, 8, '\0');  // between the last row and the end
  for (const auto& file : {revised, longer}) {
    const auto image = decode_image(bytes_of(file), {.mode = ImageMode::kUnchanged});
    ASSERT_TRUE(image) << image.error();
    EXPECT_EQ(image->pixels, whole.pixels);
  }
}

}  // namespace
}  // namespace lockstep
