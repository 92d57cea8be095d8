#include "loggers/tensorboard_events.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "records.h"

namespace lockstep::detail {
namespace {

using namespace std::string_literals;

TEST(Crc32c, HasTheValuesOfRfc3720) {
  std::string rising(32, '\0');
  std::iota(rising.begin(), rising.end(), '\0');
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(std::string(rising.rbegin(), rising.rend())), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

// The bytes of tensorboard.summary.writer.record_writer.
TEST(TfRecord, IsTensorBoards) {
  EXPECT_EQ(tfrecord("hello"), "\x05\x00\x00\x00\x00\x00\x00\x00\xea\xb2\x04\x3ehello\xbb\x1f\x1c\x19"s);
  EXPECT_EQ(tfrecord(""), "\x00\x00\x00\x00\x00\x00\x00\x00\x29\x03\x98\x07\xd8\xea\x82\xa2"s);
}

TEST(TfRecord, KeepsBytesOfAllLengths) {
  std::string file;
  for (std::size_t size : {0, 1, 255, 256, 70'000}) file += tfrecord(std::string(size, '\xfe'));
  const auto found = test::records(file);
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[4], std::string(70'000, '\xfe'));
}

}  // namespace
}  // namespace lockstep::detail
