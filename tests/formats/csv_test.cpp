#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <locale>
#include <random>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>
#include <lockstep/formats/csv.h>

#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::content;
using test::expect_error;
using test::TemporaryFolder;

std::string gzip(const std::string& text) {
  const TemporaryFolder folder;
  gzFile file = ::gzopen((folder / "a").c_str(), "wb");
  ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  ::gzclose(file);
  return content(folder / "a");
}

class Csv : public ::testing::Test {
 protected:
  CsvTable read(const std::string& text, const CsvOptions& options = {}) const {
    return read_csv(folder_.file("t.csv", text), options);
  }
  void expect_refusal(const std::string& text, const std::vector<std::string>& parts,
                      const CsvOptions& options = {}) const {
    expect_error<DataError>([&] { read(text, options); }, parts);
  }
  TemporaryFolder folder_;
};

TEST_F(Csv, ReadsNumbersRowByRow) {
  const CsvTable table = read("1,-2.5e3\n+3, 4 \n");
  EXPECT_EQ(table.rows, 2);
  EXPECT_EQ(table.columns, 2);
  EXPECT_EQ(table.values, (std::vector<double>{1, -2500, 3, 4}));
  EXPECT_EQ(table.at(1, 0), 3);
  EXPECT_TRUE(table.names.empty());
}

TEST_F(Csv, TakesAnyEndOfLineAndAByteOrderMark) {
  for (const char* text : {"1,2\n3,4", "1,2\n3,4\n", "1,2\r\n3,4\r\n",
                           "\xEF\xBB\xBF"
                           "1,2\n3,4\n"}) {
    EXPECT_EQ(read(text).values, (std::vector<double>{1, 2, 3, 4})) << text;
  }
}

TEST_F(Csv, PassesOverBlankLines) {
  for (const char* text : {"1,2\n3,4\n\n", "1,2\n3,4\n\n\n", "1,2\r\n3,4\r\n\r\n", "1,2\n3,4\n \t\n",
                           "1,2\n\n\n3,4\n", "\n \n1,2\n3,4", "\xEF\xBB\xBF\n1,2\n3,4"})
    EXPECT_EQ(read(text).values, (std::vector<double>{1, 2, 3, 4})) << text;
  EXPECT_EQ(read("\nx,y\n\n1,2\n").names, (std::vector<std::string>{"x", "y"}));
  const auto table = read("\nx,y\n\n1,2\n3,4\n\n\n5,6\n");
  for (const auto& [row, line] : {std::pair{0, 4}, {1, 5}, {2, 8}}) EXPECT_EQ(table.line_of(row), line);
  expect_refusal("1,2\n\n3\n", {"t.csv:3", "expected 2", "got 1"});
  expect_refusal("\n\n", {"t.csv", "an empty file"});
  expect_refusal("x,y\n\n", {"t.csv", "a header only"});
  expect_refusal("1\t2\n\t\n", {"t.csv:2", "column 1", "an empty field"}, {.delimiter = '\t'});
}

TEST_F(Csv, KnowsAHeader) {
  const CsvTable automatic = read("x, y\n1,2\n");
  EXPECT_EQ(automatic.names, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(automatic.rows, 1);
  EXPECT_EQ(automatic.line_of(0), 2);
  EXPECT_EQ(read("1,2\n3,4\n", {.header = CsvHeader::kFirst}).rows, 1);
  expect_refusal("x,y\n1,2\n", {"t.csv:1", "column 1", "'x'"}, {.header = CsvHeader::kNone});
  expect_refusal("x,1\n1,2\n", {"t.csv:1", "column 1", "'x'"});
  expect_refusal("x,y\n1\n", {"t.csv:2", "expected 2", "got 1"});
  EXPECT_EQ(read("0xyz,1st\n1,2\n").names, (std::vector<std::string>{"0xyz", "1st"}));
  for (const std::string odd : {"", "0x1", "-0Xff", "\"1,5\"", "\" +3,25e2\"", "\"1.234,5\""})
    expect_refusal(odd + "," + odd + "\n1,2\n", {"t.csv:1", "column 1"});
  for (const char* odd : {"nan", "NaN", "inf", "-inf", "infinity", "1e999"})
    expect_refusal(odd + std::string(",x\n1,2\n"), {"t.csv:1", "column 1", "a finite number", odd});
}

TEST_F(Csv, SplitsAtTheDelimiter) {
  EXPECT_EQ(read("1;2\t\n", {.delimiter = ';'}).values, (std::vector<double>{1, 2}));
  EXPECT_EQ(read("1\t2\n", {.delimiter = '\t'}).columns, 2);
  EXPECT_EQ(read("\t\"a\"\n1\t2\n", {.delimiter = '\t'}).names, (std::vector<std::string>{"", "a"}));
  for (const char blank : {'\t', ' '}) {
    const std::string row = {'1', blank, blank, '"', '2', '"', blank, '3', '\n'};
    EXPECT_THROW(read(row + row, {.delimiter = blank}), DataError) << "the empty field of " << row;
  }
}

TEST_F(Csv, ReadsFieldsInQuotes) {
  const CsvTable table = read("\"x, \"\"one\"\"\", \"y\",z\n\"1\", \"2.5\" ,3\n");
  EXPECT_EQ(table.names, (std::vector<std::string>{"x, \"one\"", "y", "z"}));
  EXPECT_EQ(table.values, (std::vector<double>{1, 2.5, 3}));
  EXPECT_EQ(read("\"1\",2\n").rows, 1) << "no names";
  expect_refusal("1,2\n\"3,4\n", {"t.csv:2", "column 1", "'\"3,4'"});
  expect_refusal("1,2\n3,\"4\"x\n", {"t.csv:2", "column 2", "'\"4\"x'"});
  expect_refusal("1,2\n3,\"\"\n", {"t.csv:2", "column 2", "an empty field"});
  expect_refusal("\"a\nb\",c\n1,2\n", {"t.csv:1", "a quote that is not closed"});
  expect_refusal("# comment\n1,2\n", {"t.csv:2", "expected 1", "begins with #"});
}

TEST_F(Csv, NamesLineColumnAndText) {
  expect_refusal("1,2\n3,4x\n", {"t.csv:2", "column 2", "'4x'"});
  expect_refusal("1,2\n3,\n", {"t.csv:2", "column 2", "an empty field"});
  expect_refusal("1,2\n3\n", {"t.csv:2", "wrong number of fields", "expected 2", "got 1"});
  expect_refusal("1,2\n3,4,5\n", {"t.csv:2", "expected 2", "got 3"});
  for (const char* odd : {"nan", "inf", "1e999", "0x10", "1_000", "+-1", "--1", "1 2", "\x1b[31m"}) {
    expect_refusal("1,2\n3," + std::string(odd) + "\n", {"t.csv:2", "column 2"});
  }
}

TEST_F(Csv, TakesNumbersTooSmallForADoubleForZero) {
  EXPECT_EQ(read("1e-400,-1E-99999,4.9e-324\n").values, (std::vector{0.0, 0.0, 4.9e-324}));
  expect_refusal("1,1e400\n", {"column 2", "'1e400'", "finite"});
  expect_refusal("1,1e99999\n", {"column 2", "finite"});
}

TEST_F(Csv, NamesAnotherDelimiter) {
  expect_refusal("1 2\n3 4\n", {"'3 4'", "CsvOptions::delimiter"});
  expect_refusal("1;2\n3;4\n", {"'3;4'", "delimiter"});
  expect_refusal("1,5;2\n", {"'5;2'", "delimiter"});
}

TEST_F(Csv, NeverPrintsControlCharactersOrLongFields) {
  expect_refusal("1\n\x1b[31m\n", {"'?[31m'"});
  expect_refusal("1\n" + std::string(1000, 'x'), {"x...'"});
}

TEST_F(Csv, NamesFilesThatHoldNothing) {
  expect_refusal("", {"t.csv", "an empty file"});
  expect_refusal("x,y\n", {"t.csv", "a header only"});
  expect_error<DataError>([&] { read_csv(folder_ / "none.csv"); },
                          {(folder_ / "none.csv").string(), "No such file or directory"});
  expect_error<DataError>([&] { read_csv(folder_.path()); }, {folder_.path().string(), "Is a directory"});
}

TEST_F(Csv, ReadsConcatenatedGzipMembers) {
  EXPECT_EQ(read(gzip("1,2\n3,") + gzip("4\n")).values, (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(Csv, RefusesWhatFollowsGzipMembersAndIsNone) {
  const std::string first = gzip("1,2\n"), zeros(300'000, '\0');
  EXPECT_EQ(read(first + zeros).rows, 1);
  EXPECT_EQ(read(first + zeros + gzip("3,4\n")).rows, 2);
  std::string damaged = gzip("3,4\n");
  damaged[0] = '\0';
  for (const auto& rest :
       {damaged, std::string("junk"), std::string("\x1f"), zeros + "x", std::string("3,4\n")})
    expect_refusal(first + rest, {"t.csv", "damaged", "after the end of a gzip member"});
  expect_refusal(first + "\x1f\x8bjunk, and more of it", {"t.csv", "damaged"});
}

TEST_F(Csv, NamesOtherCompressions) {
  expect_refusal("BZh91AY&SY...", {"t.csv", "bzip2", "bunzip2"});
  expect_refusal("\xfd\x37zXZ...", {"t.csv", "with xz", "unxz"});
  expect_refusal("PK\x03\x04...", {"t.csv", "zip archive", "unzip"});
  expect_refusal("\n<!DOCTYPE html>\n", {"t.csv", "HTML", "download"});
  EXPECT_EQ(read("PK,BZh,GGUF\n1,2,3\n").columns, 3);
}

TEST_F(Csv, NamesOtherFormatsAlsoWithinGzip) {
  expect_refusal(std::string("\xff\xfe"
                             "1\0,\0",
                             6),
                 {"text in UTF-16", "iconv"});
  expect_refusal("PAR1" + std::string(60, 'x'), {"a Parquet file"});
  const auto tar = std::string(257, 'x') + "ustar" + std::string(250, '\0');
  expect_refusal(tar, {"a tar archive", "tar xf"});
  expect_refusal(gzip(tar), {"a tar archive", "tar xf"});
  expect_refusal(gzip(gzip("1,2\n")), {"a file compressed with gzip"});
}

TEST_F(Csv, RefusesAPipeThatSeveralRanksRead) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "1,2\n"; });
  EXPECT_EQ(read_csv(pipe).values, (std::vector<double>{1, 2}));
  writer.join();
  const UniqueFd open_end(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
  ::setenv("WORLD_SIZE", "2", 1);
  expect_error<DataError>([&] { read_csv(pipe); }, {"pipe", "one of 2 ranks", "a file first"});
  ::unsetenv("WORLD_SIZE");
}

TEST_F(Csv, RefusesGzipThatIsCutAnywhere) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i * 7919 % 1000) + "\n";
  const std::string whole = gzip(text);
  ASSERT_EQ(read(whole).rows, 2000);
  for (std::size_t size = 2; size < whole.size(); size += size < 64 ? 1 : 97) {
    EXPECT_THROW(read(whole.substr(0, size)), DataError) << "cut after " << size << " bytes";
  }
  expect_refusal(whole.substr(0, whole.size() / 2), {"t.csv", "cut short"});
  std::string flipped = whole;
  flipped[whole.size() - 6] ^= 1;  // the checksum
  expect_refusal(flipped, {"t.csv", "damaged"});
}

TEST_F(Csv, ReadsLinesLongerThanABlock) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "12,";
  const CsvTable table = read(text + "1\n" + text + "2\n");
  EXPECT_EQ(table.columns, 300'001);
  EXPECT_EQ(table.at(1, 300'000), 2);
}

struct DecimalComma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
};

TEST_F(Csv, IgnoresTheLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new DecimalComma));
  EXPECT_EQ(read("1.5,2\n").values, (std::vector<double>{1.5, 2}));
  std::locale::global(before);
}

TEST_F(Csv, SurvivesRandomBytes) {
  std::mt19937 random(1);
  const std::string alphabet = "0123456789,.-+e\n\r x\0\x1f\x8b";
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 64, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    try {
      const CsvTable table = read(text);
      EXPECT_EQ(table.values.size(), static_cast<std::size_t>(table.rows * table.columns));
    } catch (const DataError&) {
    }
  }
}

TEST(Digits, AreTheWholeFile) {
  const CsvTable digits = read_csv(test::in_repository("data/digits.csv.gz"));
  EXPECT_EQ(digits.rows, 1797);
  EXPECT_EQ(digits.columns, 65);
  EXPECT_EQ(digits.at(0, 2), 5);
  EXPECT_EQ(digits.at(1796, 64), 8);
}

}  // namespace
}  // namespace lockstep
