#include "loggers/logger_files.h"

#include <gtest/gtest.h>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

using test::content;
using test::expect_error;
using test::FileSizeLimit;
using test::TemporaryFolder;

TEST(AppendFile, ShowsWhatWasFlushed) {
  const TemporaryFolder folder;
  AppendFile file(folder / "sub" / "a");
  file.append("one\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "sub"));
  file.flush();
  file.append("two\n");
  EXPECT_TRUE(file.pending());
  EXPECT_EQ(content(folder / "sub" / "a"), "one\n");
  file.flush();
  EXPECT_FALSE(file.pending());
  EXPECT_EQ(content(folder / "sub" / "a"), "one\ntwo\n");
}

TEST(AppendFile, ReplacesOrContinuesWhatIsThere) {
  const TemporaryFolder folder;
  folder.file("a", "old\n");
  AppendFile continued(folder / "a", AppendFile::Existing::kContinued);
  continued.append("new\n");
  continued.flush();
  EXPECT_EQ(content(folder / "a"), "old\nnew\n");
  AppendFile replaced(folder / "a");
  replaced.append("anew\n");
  replaced.flush();
  EXPECT_EQ(content(folder / "a"), "anew\n");
}

TEST(AppendFile, LeavesNoPartOfARowOnAFullDisk) {
  const TemporaryFolder folder;
  AppendFile file(folder / "a");
  file.append("0123456789\n");
  file.flush();
  file.append("abcdefghij\n");
  {
    const FileSizeLimit full(15);
    expect_error<IoError>([&] { file.flush(); }, {(folder / "a").string(), "File too large"});
    EXPECT_EQ(content(folder / "a"), "0123456789\n");
  }
  file.append("end\n");
  file.flush();
  EXPECT_EQ(content(folder / "a"), "0123456789\nabcdefghij\nend\n");
}

TEST(AppendFile, LeavesNoEmptyFileOnAFullDisk) {
  const TemporaryFolder folder;
  AppendFile file(folder / "a");
  file.append("0123456789\n");
  {
    const FileSizeLimit full(5);
    EXPECT_THROW(file.flush(), IoError);
    EXPECT_EQ(folder.entries(), 0);
  }
  file.flush();
  EXPECT_EQ(content(folder / "a"), "0123456789\n");
}

TEST(AppendFile, RefusesWhatIsNoFile) {
  AppendFile file("/dev/null");
  file.append("x");
  expect_error<IoError>([&] { file.flush(); }, {"/dev/null"});
  EXPECT_TRUE(std::filesystem::exists("/dev/null"));
}

TEST(AppendFile, DoesNotMakeAFileAnewWithoutItsFirstRows) {
  const TemporaryFolder folder;
  AppendFile file(folder / "a");
  file.append("one\n");
  file.flush();
  std::filesystem::remove(folder / "a");
  file.append("two\n");
  expect_error<IoError>([&] { file.flush(); }, {(folder / "a").string(), "No such file"});
  EXPECT_EQ(folder.entries(), 0);
}

}  // namespace
}  // namespace lockstep::detail
