#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <vector>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/formats/mapped_file.h>

#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::content;
using test::expect_error;
using test::FileSizeLimit;
using test::TemporaryFolder;

TEST(AtomicFile, ReplacesTheContent) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  write_file_atomically(folder / "a", [](FileWriter& file) {
    file.write("ne");
    file.write(std::as_bytes(std::span("w", 1)));
  });
  EXPECT_EQ(content(folder / "a"), "new");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, IsReadableByOthersAsTheUmaskSays) {
  const TemporaryFolder folder;
  const mode_t umask_before = ::umask(022);
  write_file_atomically(folder / "a", "x");
  ::umask(umask_before);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

TEST(AtomicFile, KeepsTheOldContentWhenTheWriterThrows) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  const auto write_half = [](FileWriter& file) {
    file.write("half");
    throw std::runtime_error("stop");
  };
  EXPECT_THROW(write_file_atomically(folder / "a", write_half), std::runtime_error);
  EXPECT_EQ(content(folder / "a"), "old");
  EXPECT_EQ(folder.entries(), 1) << "the temporary file is still there";
}

TEST(AtomicFile, KeepsTheOldContentWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  const std::string large(1 << 20, 'x');
  {
    const FileSizeLimit limit(64 << 10);
    expect_error<IoError>([&] { write_file_atomically(folder / "a", large); },
                          {"cannot write", (folder / "a").string(), "File too large"});
  }
  EXPECT_EQ(content(folder / "a"), "old");
  EXPECT_EQ(folder.entries(), 1) << "the temporary file is still there";
}

TEST(AtomicFile, NamesTheReasonWhenItCannotStartOrReplace) {
  const TemporaryFolder folder;
  expect_error<IoError>([&] { write_file_atomically(folder / "none/a", "x"); },
                        {(folder / "none/a").string(), "No such file or directory"});
  std::filesystem::create_directories(folder / "taken/inside");
  expect_error<IoError>([&] { write_file_atomically(folder / "taken", "x"); },
                        {(folder / "taken").string(), "directory"});
  EXPECT_EQ(folder.entries(), 1);
  expect_error<IoError>([&] { sync_folder(folder / "none"); }, {(folder / "none").string()});
}

TEST(AtomicFile, SaysWhatIsInTheWayOfAFolder) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "x");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_symlink("loop", folder / "loop");
  expect_error<IoError>([&] { create_folders(folder / "a/b"); },
                        {(folder / "a").string(), "a file of that name"});
  expect_error<IoError>([&] { create_folders(folder / "dangling"); },
                        {"a link to 'nowhere', which is no folder"});
  expect_error<IoError>([&] { create_folders(folder / "loop/b"); }, {"a link to 'loop', which is no folder"});
}

TEST(AtomicFile, FollowsLinksToFilesAndReplacesNothingElse) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  std::filesystem::create_symlink("a", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_EQ(content(folder / "a"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(write_file_atomically(folder / "pipe", "x"), IoError);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  EXPECT_EQ(folder.entries(), 3);
}

TEST(AtomicFile, WorksWithAPathWithoutFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_file_atomically("plain", "x");
  std::filesystem::current_path(before);
  EXPECT_EQ(content(folder / "plain"), "x");
}

TEST(MappedFile, MapsMovesAndRefuses) {
  const TemporaryFolder folder;
  MappedFile first(folder.file("a", "hello"));
  const MappedFile second = std::move(first);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(second.bytes().data()), second.bytes().size()),
            "hello");
  EXPECT_TRUE(MappedFile(folder.file("empty", "")).bytes().empty());
  expect_error<IoError>([&] { MappedFile{folder / "none"}; }, {(folder / "none").string(), "No such file"});
  expect_error<IoError>([&] { MappedFile{folder.path()}; }, {folder.path().string(), "no regular file"});
}

}  // namespace
}  // namespace lockstep
