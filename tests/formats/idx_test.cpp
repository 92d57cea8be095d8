#include <gmock/gmock.h>
#include <zlib.h>

#include <cstring>

#include <lockstep/base/error.h>
#include <lockstep/formats/idx.h>

#include "support/bytes.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using namespace std::string_literals;
using test::bytes_of;
using test::expect_error;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two pictures of 2 x 3 pixels, as MNIST's files have them.
const std::string kPictures =
    "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03"s + "\x01\x02\x03\x04\x05\x06\xff\x0a\x0b\x0c\x0d\x0e"s;

template <class T>
std::vector<T> values(const idx::Array& array) {
  std::vector<T> values(array.bytes.size() / sizeof(T));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

std::string compressed(const TemporaryFolder& folder, const std::string& text) {
  const auto path = folder / "c.gz";
  const gzFile file = ::gzopen(path.c_str(), "wb");
  ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  ::gzclose(file);
  return path;
}

TEST(Idx, ReadsBytesPlainOrCompressed) {
  const TemporaryFolder folder;
  for (const auto& path : {folder.file("p.idx", kPictures).string(), compressed(folder, kPictures)}) {
    const auto array = idx::read(path);
    EXPECT_EQ(array.dtype, idx::Dtype::kUint8);
    EXPECT_THAT(array.shape, ElementsAre(2, 2, 3));
    EXPECT_THAT(values<std::uint8_t>(array), ElementsAre(1, 2, 3, 4, 5, 6, 255, 10, 11, 12, 13, 14));
  }
}

TEST(Idx, OrdersTheBytesOfWiderElements) {
  const auto shorts = idx::parse(bytes_of("\0\0\x0b\x01\0\0\0\x02\x01\x02\xff\xfe"s));
  ASSERT_TRUE(shorts) << shorts.error();
  EXPECT_THAT(values<std::int16_t>(*shorts), ElementsAre(258, -2));
  const auto floats = idx::parse(bytes_of("\0\0\x0d\x01\0\0\0\x01\x3f\xc0\0\0"s));
  ASSERT_TRUE(floats) << floats.error();
  EXPECT_THAT(values<float>(*floats), ElementsAre(1.5F));
  const auto doubles = idx::parse(bytes_of("\0\0\x0e\x01\0\0\0\x01\xbf\xf0\0\0\0\0\0\0"s));
  ASSERT_TRUE(doubles) << doubles.error();
  EXPECT_THAT(values<double>(*doubles), ElementsAre(-1.0));
}

TEST(Idx, ReadsArraysOfNothing) {
  const auto none = idx::parse(bytes_of("\0\0\x08\x02\0\0\0\0\0\0\0\x05"s));
  ASSERT_TRUE(none) << none.error();
  EXPECT_THAT(none->shape, ElementsAre(0, 5));
  EXPECT_TRUE(none->bytes.empty());
}

TEST(Idx, SaysWhatIsWrong) {
  const auto reason = [](const std::string& file) { return idx::parse(bytes_of(file)).error(); };
  EXPECT_THAT(reason("\0\0"s), HasSubstr("fewer than 4 bytes"));
  EXPECT_THAT(reason("\x1f\x8b\x08\0"s), HasSubstr("no IDX file"));
  EXPECT_THAT(reason("\0\0\x0a\x01\0\0\0\0"s), HasSubstr("no IDX file"));
  EXPECT_THAT(reason("\0\0\x08\0"s), HasSubstr("without dimensions"));
  EXPECT_THAT(reason("\0\0\x08\x02\0\0\0\x01"s), HasSubstr("within its shape"));
  EXPECT_THAT(reason(kPictures.substr(0, 20)), HasSubstr("4 of 12 bytes"));
  EXPECT_THAT(reason(kPictures + "x"), HasSubstr("after the last"));
  EXPECT_THAT(reason("\0\0\x0e\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"s), HasSubstr("2^63"));
  EXPECT_THAT(reason("\0\0\x08\x04\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x01"s), HasSubstr("2^63"));
  EXPECT_THAT(reason("\0\0\x08\x02\x7f\xff\xff\xff\xff\xff\xff\xff"s), HasSubstr("0 of 9223372030412324865"));
}

TEST(Idx, NamesTheFile) {
  const TemporaryFolder folder;
  expect_error<DataError>([&] { idx::read(folder / "none"); }, {"none", "No such file"});
  const auto cut = folder.file("cut.idx", kPictures.substr(0, 20));
  expect_error<DataError>([&] { idx::read(cut); }, {"cut.idx", "4 of 12 bytes"});
  const auto gz = compressed(folder, kPictures);
  std::filesystem::resize_file(gz, std::filesystem::file_size(gz) - 9);
  expect_error<DataError>([&] { idx::read(gz); }, {"c.gz", "cut short"});
}

}  // namespace
}  // namespace lockstep
