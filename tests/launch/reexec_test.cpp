// Ranks that are new processes of the program, started while it has threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "launch/launcher_process.h"
#include "support/paths.h"

namespace lockstep {
namespace {

using testing::LauncherProcess;
using testing::rank_one;

std::function<int(LaunchOptions)> launch_case(const char* fault) {
  return [=](const LaunchOptions& options) -> int {
    const std::string program = test::in_build("bin/launch_case");
    ::setenv("GREETING", "hello", 1);
    ::execl(program.c_str(), program.c_str(), options.run_dir.c_str(), fault, nullptr);
    return 98;
  };
}

TEST(LaunchReexec, RunsTheProgramOncePerRankInItsPlace) {
  LauncherProcess launcher(launch_case("none"));
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(test::content(launcher.run_dir() / "rank_0"), "rank-0\nreexec\n3\n-\nhello\nprivate socket\n");
  EXPECT_EQ(test::content(launcher.run_dir() / "rank_2"), "rank-2\nreexec\n3\n-\nhello\n-\n");
}

TEST(LaunchReexec, SeesWhatADeadRankDid) {
  LauncherProcess launcher(launch_case("kill"));
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_EQ(result.errors, rank_one(result) + "killed by SIGKILL in all_gather seq 1\n");
}

TEST(LaunchReexec, SeesTheErrorOfARank) {
  LauncherProcess launcher(launch_case("throw"));
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors, rank_one(result) + "failed: injected fault at step 0\n");
}

TEST(LaunchReexec, StopsOnASignalThoughOtherThreadsMayTakeIt) {
  LauncherProcess launcher(launch_case("hang"));
  ASSERT_TRUE(testing::eventually([&] {
    return exists(launcher.run_dir() / "rank_0") && exists(launcher.run_dir() / "rank_1") &&
           exists(launcher.run_dir() / "rank_2") && exists(launcher.run_dir() / "ranks.json");
  }));
  ::kill(launcher.pid(), SIGTERM);
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 143);
  EXPECT_EQ(result.errors, "lockstep: stopped by SIGTERM\n");
  for (const auto& [rank, pid] : result.pids) EXPECT_FALSE(testing::is_running(pid)) << "rank " << rank;
}

}  // namespace
}  // namespace lockstep
