#include "loggers/logger_files.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/forked.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

TEST(VersionFolder, ComesAfterTheLargest) {
  const TemporaryFolder folder;
  EXPECT_EQ(claim_version(folder / "runs"), 0);
  EXPECT_EQ(claim_version(folder / "runs"), 1);
  fs::create_directory(folder / "runs" / "version_41_old");
  fs::create_directory(folder / "runs" / "version_x");
  fs::create_directory(folder / "runs" / "other");
  fs::remove(folder / "runs" / "version_0");
  EXPECT_EQ(claim_version(folder / "runs"), 42);
  EXPECT_TRUE(fs::is_directory(folder / "runs" / "version_42"));
}

TEST(VersionFolder, StepsOverFilesOfThatName) {
  const TemporaryFolder folder;
  folder.file("version_0", "");
  EXPECT_EQ(claim_version(folder.path()), 1);
}

TEST(VersionFolder, NamesAFolderThatCannotBeMade) {
  const TemporaryFolder folder;
  const auto file = folder.file("file", "");
  test::expect_error<IoError>([&] { claim_version(file / "runs"); }, {(file / "runs").string()});
}

TEST(VersionFolder, IsClaimedByOneProcess) {
  constexpr int kProcesses = 4, kClaims = 50;
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(test::start_forked([&] {
      for (int claim = 0; claim < kClaims; ++claim) {
        const auto version = claim_version(folder / "runs");
        // Fails when another process has claimed the same.
        if (!fs::create_directory(folder / "runs" / ("version_" + std::to_string(version)) / "mine"))
          ::_exit(2);
      }
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "runs"), {}), kProcesses * kClaims);
}

}  // namespace
}  // namespace lockstep::detail
