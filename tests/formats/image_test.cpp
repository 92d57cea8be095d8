#include <gmock/gmock.h>

#include <lockstep/formats/image.h>

#include "support/bytes.h"

namespace lockstep {
namespace {

using test::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DecodeImage, ReadsNetpbm) {
  const auto colours = decode_image(bytes_of("P6\n# a comment\n2 1\n255\nabcdef"));
  ASSERT_TRUE(colours) << colours.error();
  EXPECT_EQ(colours->channels, 3);
  EXPECT_EQ(colours->height, 1);
  EXPECT_EQ(colours->width, 2);
  EXPECT_THAT(colours->pixels, ElementsAre('a', 'd', 'b', 'e', 'c', 'f'));
  const auto grey = decode_image(bytes_of("P5 1 2 255 xy"), {.mode = ImageMode::kUnchanged});
  ASSERT_TRUE(grey) << grey.error();
  EXPECT_THAT(grey->pixels, ElementsAre('x', 'y'));
}

TEST(DecodeImage, SpreadsValuesOfNetpbmAsPillowDoes) {
  const auto grey = [](const std::string& file) {
    return decode_image(bytes_of(file), {.mode = ImageMode::kUnchanged})->pixels;
  };
  EXPECT_THAT(grey(std::string("P5 4 1 15 ") + "\x01\x07\x0f\xff"), ElementsAre(17, 119, 255, 255));
  EXPECT_THAT(grey(std::string("P5 2 1 1 ") + std::string("\0\1", 2)), ElementsAre(0, 255));
  EXPECT_THAT(grey(std::string("P5 2 1 6 ") + "\x01\x03"),
              ElementsAre(42, 128));  // 42.5 goes to the even one
  const auto wide =
      decode_image(bytes_of(std::string("P6 1 1 65535 ") + std::string("\xff\xff\x80\0\0\1", 6)));
  EXPECT_THAT(wide->pixels, ElementsAre(255, 128, 0));
}

TEST(DecodeImage, ChangesChannels) {
  const std::string colours = std::string("P6 1 1 255 ") + "\x64\x32\xc8";
  const auto decoded = [&](ImageMode mode) {
    return decode_image(bytes_of(colours), {.mode = mode})->pixels;
  };
  EXPECT_THAT(decoded(ImageMode::kGray), ElementsAre(82));  // Pillow's
  EXPECT_THAT(decoded(ImageMode::kRgbAlpha), ElementsAre(100, 50, 200, 255));
  const auto grey = decode_image(bytes_of("P5 1 1 255 a"), {.mode = ImageMode::kRgb});
  EXPECT_THAT(grey->pixels, ElementsAre('a', 'a', 'a'));
}

TEST(DecodeImage, SaysWhatIsWrong) {
  const auto reason = [](const std::string& file, std::int64_t max_pixels = 100) {
    return decode_image(bytes_of(file), {.max_pixels = max_pixels}).error();
  };
  EXPECT_THAT(reason(""), HasSubstr("neither PNG nor JPEG nor binary PGM or PPM, but an empty file"));
  EXPECT_THAT(reason("GIF89a"), HasSubstr("but a GIF picture"));
  EXPECT_THAT(reason("RIFFxxxxWEBPVP8 "), HasSubstr("but a WebP picture"));
  EXPECT_THAT(reason("P3 1 1 255 1 2 3"), HasSubstr("but a PPM of text"));
  EXPECT_THAT(reason("<!DOCTYPE html><html>"), HasSubstr("but a page of the web"));
  EXPECT_TRUE(reason("any text").ends_with("PPM"));
  EXPECT_THAT(reason("P5 2"), HasSubstr("damaged netpbm header"));
  EXPECT_THAT(reason("P5 2 2 255"), HasSubstr("damaged netpbm header"));
  EXPECT_THAT(reason("P5 2 2 65535 abcdefg"), HasSubstr("7 of 8 bytes"));
  EXPECT_THAT(reason("P5 2 2 65536 abcdefgh"), HasSubstr("65536"));
  EXPECT_THAT(reason("P5 2 2 0 abcd"), HasSubstr("values up to 0"));
  EXPECT_THAT(reason("P5 2 2 255 abc"), HasSubstr("3 of 4 bytes"));
  EXPECT_THAT(reason("P5 0 2 255 "), HasSubstr("no pixels"));
  EXPECT_THAT(reason("P5 11 10 255 " + std::string(110, 'x')), HasSubstr("11 x 10 pixels, more than 100"));
  EXPECT_THAT(reason("P5 9999999999 1 255 "), HasSubstr("damaged"));
}

}  // namespace
}  // namespace lockstep
