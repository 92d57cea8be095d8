#include "offload/swap_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/forked.h"
#include "swap_cases.h"

namespace lockstep::offload {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::start_forked;
using test::TemporaryFolder;
using test::wait_for;

/// One process tells another one that it has come somewhere.
class Signal {
 public:
  Signal() { EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void give() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void await() const {
    char byte;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2];
};

TEST(SwapFolder, IsInTheDirectoryAndGoesWithItsObject) {
  const TemporaryFolder directory;
  {
    const SwapFolder folder({.directory = directory.path(), .job = "night run/7", .rank = 3});
    EXPECT_EQ(folder.path().parent_path(), directory.path());
    EXPECT_THAT(folder.path().filename().string(), ::testing::StartsWith("lockstep-swap_night_run_7_rank3_"));
    EXPECT_TRUE(fs::is_directory(folder.path()));
    std::ofstream(folder.path() / "file") << "x";
  }
  EXPECT_EQ(directory.entries(), 0);
}

TEST(SwapFolder, ThatIsReplacedGoesAtOnce) {
  const TemporaryFolder directory;
  SwapFolder folder({.directory = directory.path()});
  folder = SwapFolder({.directory = directory.path()});
  EXPECT_EQ(directory.entries(), 1);
  EXPECT_TRUE(fs::is_directory(folder.path()));
}

TEST(SwapFolder, NamesWhatIsWrongWithTheDirectory) {
  const TemporaryFolder directory;
  const auto refused = [](const fs::path& path, const std::vector<std::string>& parts) {
    expect_error<ConfigError>(
        [&] { SwapFolder({.directory = path, .rank = 2, .option = "offload_optimizer.nvme_path"}); }, parts);
  };
  refused(directory / "none",
          {"offload_optimizer.nvme_path", (directory / "none").string(), "nothing of that name", "rank 2"});
  refused(directory.file("file", "x"), {"no directory"});
  refused("", {"empty path"});
  refused("/proc", {"/proc", "a directory that this process can write to"});  // to root as well
}

TEST(SwapFolder, OfAnUnprivilegedUserInAForeignDirectory) {
  const TemporaryFolder directory;
  ::chmod(directory.path().c_str(), 0555);
  const pid_t child = start_forked([&] {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) throw std::runtime_error("still root");
    expect_error<ConfigError>([&] { SwapFolder({.directory = directory.path()}); }, {"Permission denied"});
    if (::testing::Test::HasFailure()) throw std::runtime_error("see above");
  });
  EXPECT_EQ(wait_for(child), 0);
}

TEST(SwapFolder, OfAKilledProcessIsRemovedByTheNext) {
  const TemporaryFolder directory;
  const Signal ready;
  const pid_t child = start_forked([&] {
    const SwapFolder folder({.directory = directory.path()});
    const SwapFile file(folder, "a", 1 << 20);
    ready.give();
    ::pause();
  });
  ready.await();
  ::kill(child, SIGKILL);
  wait_for(child);
  EXPECT_EQ(directory.entries(), 1);
  const SwapFolder folder({.directory = directory.path()});
  EXPECT_EQ(directory.entries(), 1);
  EXPECT_TRUE(fs::is_directory(folder.path()));
}

TEST(SwapFolder, IsRemovedAtExitOfItsOwnProcess) {
  const TemporaryFolder directory;
  const auto program = test::in_build("bin/exit_case");
  const pid_t child =
      start_forked([&] { ::execl(program.c_str(), "exit_case", directory.path().c_str(), nullptr); });
  const int status = wait_for(child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_EQ(directory.entries(), 0);
}

TEST(SwapFolder, StaysWhenAForkedChildDestroysItsCopy) {
  const TemporaryFolder directory;
  std::optional<SwapFolder> folder;
  folder.emplace(SwapFolderOptions{.directory = directory.path()});
  wait_for(start_forked([&] { folder.reset(); }));
  EXPECT_EQ(directory.entries(), 1);
  folder.reset();
  EXPECT_EQ(directory.entries(), 0);
}

TEST(SwapFolder, TwoJobsMayNameOneDirectory) {
  const TemporaryFolder directory;
  const Signal written, other_done;
  const pid_t child = start_forked([&] {
    const SwapFolder folder({.directory = directory.path(), .job = "same"});
    SwapFile file(folder, "a", 1 << 20);
    AlignedBuffer buffer(1 << 20);
    fill(buffer.bytes(), 1);
    file.write(0, buffer.bytes()).wait();
    written.give();
    other_done.await();
    buffer = AlignedBuffer(1 << 20);
    file.read(0, buffer.bytes()).wait();
    if (differing(buffer.bytes(), 1) != 0 || !fs::exists(file.path())) throw std::runtime_error("damaged");
  });
  written.await();
  {
    const SwapFolder folder({.directory = directory.path(), .job = "same"});
    SwapFile file(folder, "a", 1 << 20);
    AlignedBuffer buffer(1 << 20);
    fill(buffer.bytes(), 2);
    file.write(0, buffer.bytes()).wait();
    EXPECT_EQ(directory.entries(), 2);
  }
  EXPECT_EQ(directory.entries(), 1);
  other_done.give();
  EXPECT_EQ(wait_for(child), 0);
}

TEST(SwapFolder, LeavesWhatIsNotItsKindOrOfAnotherMachine) {
  const TemporaryFolder directory;
  fs::create_directory(directory / "data");
  fs::create_directory(directory / "lockstep-swap_1_rank0_00000000@some-other-machine");
  (void)directory.file("lockstep-swap_notes", "x");
  { const SwapFolder folder({.directory = directory.path()}); }
  EXPECT_EQ(directory.entries(), 3);
}

}  // namespace
}  // namespace lockstep::offload
