// The launcher is told to stop, or dies.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include <lockstep/launch/fault.h>

#include "launch/launcher_process.h"

namespace lockstep {
namespace {

// A shell that starts the tests in the background has them ignore SIGINT, and so would all that they start.
[[maybe_unused]] const auto kHeedsInterrupts = std::signal(SIGINT, SIG_DFL);

using namespace std::chrono_literals;
using testing::eventually;
using testing::is_running;
using testing::LauncherProcess;
using testing::sleep_for_ever;
using testing::this_rank;

/// Launches two ranks that get ready, then do `body`.
std::function<int(LaunchOptions)> two_ranks(const std::function<void(const LaunchOptions&)>& body,
                                            std::chrono::milliseconds interrupt_grace = 60s) {
  return [=](LaunchOptions options) {
    options.nprocs = 2;
    options.interrupt_grace = interrupt_grace;
    return launch_forked(options, [&] {
      body(options);
      return 0;
    });
  };
}

void wait_ready(const LaunchOptions& options) {
  testing::ready(options);
  sleep_for_ever();
}

void expect_gone(const std::map<int, pid_t>& pids) {
  EXPECT_TRUE(eventually([&] {
    for (const auto& [rank, pid] : pids) {
      if (is_running(pid)) return false;
    }
    return true;
  })) << "ranks survive";
}

class StopSignal : public ::testing::TestWithParam<int> {};

TEST_P(StopSignal, ReachesTheRanksAndIsTheExitCode) {
  LauncherProcess launcher(two_ranks(wait_ready));
  const auto pids = launcher.wait_for_ranks(2);
  ::kill(launcher.pid(), GetParam());
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 128 + GetParam());
  EXPECT_EQ(result.errors,
            GetParam() == SIGINT ? "lockstep: stopped by SIGINT\n" : "lockstep: stopped by SIGTERM\n");
  EXPECT_FALSE(exists(launcher.run_dir() / "failure.json"));
  expect_gone(pids);
}

INSTANTIATE_TEST_SUITE_P(Signals, StopSignal, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& tried) { return tried.param == SIGINT ? "INT" : "TERM"; });

TEST(Interrupt, KillsAfterTheGracePeriod) {
  LauncherProcess launcher(two_ranks(
      [](const LaunchOptions& options) {
        std::signal(SIGTERM, SIG_IGN);
        wait_ready(options);
      },
      200ms));
  const auto pids = launcher.wait_for_ranks(2);
  ::kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.wait().status, 143);
  expect_gone(pids);
}

TEST(Interrupt, SecondSignalKillsAtOnceUnlessItIsTheSameRequest) {
  LauncherProcess launcher(two_ranks([](const LaunchOptions& options) {
    std::signal(SIGINT, SIG_IGN);
    wait_ready(options);
  }));
  launcher.wait_for_ranks(2);
  ::kill(launcher.pid(), SIGINT);
  std::this_thread::sleep_for(1ms);
  ::kill(launcher.pid(), SIGINT);  // as timeout(1) does, which signals process and group
  std::this_thread::sleep_for(1500ms);
  EXPECT_TRUE(is_running(launcher.pid()));
  ::kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.wait().status, 130);
}

volatile std::sig_atomic_t interrupts = 0;

/// Counts SIGINTs for a while after the first, and leaves the count in a file.
void count_interrupts(const LaunchOptions& options) {
  std::signal(SIGINT, [](int) { interrupts = interrupts + 1; });
  testing::ready(options);
  eventually([] { return interrupts > 0; });
  const auto until = std::chrono::steady_clock::now() + 300ms;
  while (std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(10ms);
  testing::write_file(options.run_dir / ("count_" + std::to_string(this_rank())), std::to_string(interrupts));
}

void expect_one_interrupt_each(LauncherProcess& launcher) {
  EXPECT_EQ(launcher.wait().status, 130);
  EXPECT_EQ(test::content(launcher.run_dir() / "count_0"), "1");
  EXPECT_EQ(test::content(launcher.run_dir() / "count_1"), "1");
}

TEST(Interrupt, IsPassedOnOnce) {
  LauncherProcess launcher(two_ranks(count_interrupts));
  launcher.wait_for_ranks(2);
  ::kill(launcher.pid(), SIGINT);
  expect_one_interrupt_each(launcher);
}

TEST(Interrupt, FromATerminalIsNotPassedOnSinceTheRanksHaveIt) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal) | ::unlockpt(terminal), 0);
  const std::string name = ::ptsname(terminal);
  LauncherProcess launcher([&](LaunchOptions options) {
    ::setsid();
    const int side = ::open(name.c_str(), O_RDWR | O_CLOEXEC);  // becomes the controlling terminal
    if (side < 0) return 98;
    return two_ranks(count_interrupts)(options);
  });
  launcher.wait_for_ranks(2);
  ASSERT_EQ(::write(terminal, "\x03", 1), 1);
  expect_one_interrupt_each(launcher);
  ::close(terminal);
}

TEST(Interrupt, LeavesNobodyWhenTheLauncherIsKilled) {
  LauncherProcess launcher(two_ranks([](const LaunchOptions& options) {
    std::signal(SIGTERM, SIG_IGN);
    wait_ready(options);
  }));
  const auto pids = launcher.wait_for_ranks(2);
  for (const auto& [rank, pid] : pids) ASSERT_TRUE(is_running(pid)) << rank;
  ::kill(launcher.pid(), SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  expect_gone(pids);
  EXPECT_LE(std::chrono::steady_clock::now() - killed, 2s);
}

TEST(Supervision, LetsARankEndBeforeTheOthersAndLeavesAStoppedOneAlone) {
  LauncherProcess launcher(two_ranks(
      [](const LaunchOptions& options) {
        testing::ready(options);
        inject({.kind = FaultKind::kStop, .rank = 1, .step = 0}, this_rank(), 0);
      },
      200ms));
  const auto pids = launcher.wait_for_ranks(2);
  ASSERT_TRUE(eventually([&] { return !is_running(pids.at(0)); }));
  std::this_thread::sleep_for(500ms);
  EXPECT_TRUE(is_running(launcher.pid()));
  EXPECT_TRUE(is_running(pids.at(1)));
  ::kill(pids.at(1), SIGCONT);
  EXPECT_EQ(launcher.wait().status, 0);
}

TEST(Supervision, DoesNotSpin) {
  LauncherProcess launcher(two_ranks(wait_ready));
  launcher.wait_for_ranks(2);
  const auto ticks = [&] {  // fields 14 and 15 of stat: user and system time
    const auto stat = test::content("/proc/" + std::to_string(launcher.pid()) + "/stat");
    std::istringstream fields(stat.substr(stat.rfind(')') + 2));
    std::string skipped;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    long user = 0, system = 0;
    fields >> user >> system;
    return user + system;
  };
  const auto before = ticks();
  std::this_thread::sleep_for(500ms);
  EXPECT_LE(ticks() - before, 5);
}

}  // namespace
}  // namespace lockstep
