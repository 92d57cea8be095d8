// A rank fails: who is named, how fast the others stop, what is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/launch/fault.h>
#include <lockstep/launch/join.h>

#include "launch/launcher_process.h"
#include "support/json_file.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using ::testing::HasSubstr;
using testing::is_running;
using testing::launch_ranks;
using testing::LauncherProcess;
using testing::rank_one;
using testing::sleep_for_ever;
using testing::this_rank;

constexpr auto kStopLimit = 4s;  // one second, and time for a busy machine

void fail_in_second_collective(FaultKind kind, int rank) {
  enter_collective("broadcast");
  leave_collective();
  enter_collective("all_reduce");
  inject({.kind = kind, .rank = 1, .step = 5}, rank, 5);
  sleep_for_ever();
}

struct FailureCase {
  const char* name;
  FaultKind kind;
  int status;
  const char* text;
};

class FaultyRank : public ::testing::TestWithParam<FailureCase> {};

TEST_P(FaultyRank, IsNamedOnceAndTheOthersStop) {
  const auto result = launch_ranks(3, [](int rank) { fail_in_second_collective(GetParam().kind, rank); });
  EXPECT_EQ(result.status, GetParam().status);
  EXPECT_EQ(result.errors, rank_one(result) + GetParam().text + "\n");
  EXPECT_LE(result.took, kStopLimit);
  for (const auto& [rank, pid] : result.pids) EXPECT_FALSE(is_running(pid)) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FaultyRank,
    ::testing::Values(
        FailureCase{"kill", FaultKind::kKill, 128 + SIGKILL, "killed by SIGKILL in all_reduce seq 2"},
        FailureCase{"abort", FaultKind::kAbort, 128 + SIGABRT, "killed by SIGABRT in all_reduce seq 2"},
        FailureCase{"exit", FaultKind::kExit, 3, "exited with code 3 in all_reduce seq 2"},
        FailureCase{"exception", FaultKind::kThrow, 1, "failed: injected fault at step 5"}),
    [](const auto& tried) { return tried.param.name; });

TEST(Fault, BefallsOnlyItsRankAndStep) {
  const Fault fault{.kind = FaultKind::kThrow, .rank = 1, .step = 5};
  EXPECT_NO_THROW(inject(fault, 0, 5));
  EXPECT_NO_THROW(inject(fault, 1, 4));
  EXPECT_THROW(inject(fault, 1, 5), std::runtime_error);
  EXPECT_NO_THROW(inject({}, 0, 0));
}

TEST(Failure, SaysWhereARankDiedOutsideACollective) {
  const auto before = launch_ranks(2, [](int rank) {
    inject({FaultKind::kKill, 1, 0}, rank, 0), sleep_for_ever();
  });
  EXPECT_EQ(before.errors, rank_one(before) + "killed by SIGKILL before its first collective\n");
  const auto after = launch_ranks(2, [](int rank) {
    enter_collective("barrier");
    leave_collective();
    inject({FaultKind::kKill, 1, 0}, rank, 0);
    sleep_for_ever();
  });
  EXPECT_EQ(after.errors, rank_one(after) + "killed by SIGKILL after barrier seq 1\n");
}

TEST(Failure, KillsRanksThatIgnoreBeingAsked) {
  LauncherProcess launcher([](LaunchOptions options) {
    options.nprocs = 2;
    return launch_forked(options, [&]() -> int {
      if (this_rank() == 1) {
        eventually([&] { return exists(options.run_dir / "ready_0"); });
        throw std::runtime_error("boom");
      }
      std::signal(SIGTERM, SIG_IGN);
      testing::ready(options);
      sleep_for_ever();
    });
  });
  const auto result = launcher.wait();
  EXPECT_EQ(result.errors, rank_one(result) + "failed: boom\n");
  EXPECT_LE(result.took, kStopLimit);
}

TEST(Failure, GivesTheOthersTheGracePeriodToLeave) {
  LauncherProcess launcher([](LaunchOptions options) {
    options.nprocs = 2;
    options.grace = 20s;
    static volatile std::sig_atomic_t asked = 0;
    return launch_forked(options, [&] {
      std::signal(SIGTERM, [](int) { asked = 1; });
      testing::ready(options);
      if (this_rank() == 1) {
        eventually([&] { return exists(options.run_dir / "ready_0"); });
        return 3;
      }
      eventually([] { return asked != 0; });
      std::this_thread::sleep_for(100ms);
      testing::write_file(options.run_dir / "left", "in order");
      return 0;
    });
  });
  EXPECT_EQ(launcher.wait().status, 3);
  EXPECT_EQ(test::content(launcher.run_dir() / "left"), "in order");
}

TEST(Failure, ExitCodeTellsConfigurationFromOtherErrors) {
  const auto result = launch_ranks(2, [](int rank) {
    if (rank == 1) throw ConfigError("options", {.what = "key lr\nsecond line"});
    sleep_for_ever();
  });
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.errors, rank_one(result) + "failed: [options] key lr\n");
}

TEST(Failure, IsNamedWhenTheRankMainThrowsOutsideRunRank) {
  LauncherProcess launcher([](LaunchOptions options) {
    options.nprocs = 2;
    return launch_forked(options, []() -> int {
      if (this_rank() == 1) throw std::runtime_error("thrown");
      sleep_for_ever();
    });
  });
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors, rank_one(result) + "failed: thrown\n");
}

TEST(Cause, IsNotTheRankThatLostItsPeer) {
  const auto result = launch_ranks(3, [](int rank) {
    if (rank == 1) std::this_thread::sleep_for(50ms), throw std::runtime_error("the true one");
    throw PeerLost("comm", {.what = "rank 1 went away"});
  });
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors, rank_one(result) + "failed: the true one\n");
}

TEST(Cause, IsASilentExitRatherThanALostPeer) {
  const auto result = launch_ranks(3, [](int rank) {
    if (rank == 1) std::this_thread::sleep_for(50ms), inject({FaultKind::kExit, 1, 0}, rank, 0);
    throw PeerLost("comm", {.what = "rank 1 went away"});
  });
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr(rank_one(result) + "exited with code 3"));
}

void finish_collectives(int count) {
  for (int i = 0; i < count; ++i) enter_collective("all_reduce"), leave_collective();
}

TEST(Cause, IsARankThatLeftInMidRunThoughWithCodeZero) {
  const auto result = launch_ranks(3, [](int rank) {
    finish_collectives(4);
    if (rank == 1) ::_exit(0);
    std::this_thread::sleep_for(50ms);
    throw PeerLost("comm", {.what = "rank 1 went away"});
  });
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors,
            rank_one(result) + "exited with code 0 in the middle of the run after all_reduce seq 4\n");
}

TEST(Cause, IsARankThatLeavesAfterItIsMissed) {
  const auto result = launch_ranks(2, [](int rank) {
    if (rank == 0) throw PeerLost("comm", {.what = "rank 1 went away"});
    std::this_thread::sleep_for(50ms);
    ::_exit(0);
  });
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr(rank_one(result) + "exited with code 0 in the middle of the run"));
}

TEST(Cause, IsARankThatEndsWithCodeZeroWhileOthersWaitForItToJoin) {
  for (const bool returns : {false, true}) {
    const auto result = launch_ranks(2, [&](int rank) {
      if (rank == 1 && returns) return;
      if (rank == 1) ::_exit(0);
      std::this_thread::sleep_for(200ms);  // it is gone by then
      const JoinNote note;
      sleep_for_ever();
    });
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.errors, rank_one(result) +
                                 "exited with code 0 in the middle of the run before its first collective; "
                                 "rank 0 waits for it to join\n");
    EXPECT_LE(result.took, kStopLimit);
  }
}

TEST(Cause, IsNotARankThatEndsAfterItHasBegunToJoin) {
  const auto result = launch_ranks(2, [](int rank) {
    const JoinNote note;
    if (rank == 1) ::_exit(0);
    std::this_thread::sleep_for(800ms);
  });
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "");
}

TEST(Cause, IsNotARankThatIsDone) {
  const auto result = launch_ranks(2, [](int rank) {
    if (rank == 1) std::this_thread::sleep_for(50ms), throw PeerLost("comm", {.what = "another node"});
  });
  EXPECT_EQ(result.errors, rank_one(result) + "failed: [comm] another node\n");
}

TEST(Cause, IsNotARankThatAbortsAfterItLostItsPeer) {
  const auto result = launch_ranks(2, [](int rank) {
    if (rank == 1) std::this_thread::sleep_for(50ms), throw std::runtime_error("the true one");
    set_outcome(RankOutcome::kPeerFailed, "rank 1 went away");
    std::abort();
  });
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors, rank_one(result) + "failed: the true one\n");
}

TEST(Cause, IsARankThatTakesItsTimeToEnd) {
  const auto result = launch_ranks(2, [](int rank) {
    if (rank == 0) throw PeerLost("comm", {.what = "rank 1 went away"});
    set_outcome(RankOutcome::kFailed, "the true one");
    std::this_thread::sleep_for(800ms);
    throw std::runtime_error("the true one");
  });
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors, rank_one(result) + "failed: the true one\n");
}

TEST(Cause, OfATimeoutNamesWhoIsBehind) {
  LauncherProcess launcher([](LaunchOptions options) {
    options.nprocs = 3;
    return launch_forked(options, [&] {
      finish_collectives(this_rank() == 0 ? 19 : 20);
      testing::ready(options);
      if (this_rank() == 1) {
        eventually(
            [&] { return exists(options.run_dir / "ready_0") && exists(options.run_dir / "ready_2"); });
        throw Timeout("comm", {.what = "all_reduce failed"});
      }
      sleep_for_ever();
      return 0;
    });
  });
  const auto result = launcher.wait();
  EXPECT_EQ(
      result.errors,
      rank_one(result) + "failed: [comm] all_reduce failed; waiting for rank 0 (after all_reduce seq 19)\n");
  const auto json = test::json_of(launcher.run_dir() / "failure.json");
  EXPECT_EQ("lockstep: " + json["message"].get<std::string>() + "\n", result.errors);
}

TEST(Cause, IsASignalRatherThanAnEarlierSilentExit) {
  const auto result = launch_ranks(2, [](int rank) {
    if (rank == 0) ::_exit(4);
    std::this_thread::sleep_for(50ms);
    inject({FaultKind::kKill, 1, 0}, rank, 0);
  });
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_THAT(result.errors, HasSubstr(rank_one(result) + "killed by SIGKILL"));
}

TEST(Cause, IsTheTimeoutWhereNobodyFailed) {
  const auto result = launch_ranks(3, [](int rank) {
    if (rank == 1) std::this_thread::sleep_for(50ms), throw Timeout("comm", {.what = "rank 2 is absent"});
    if (rank == 0) throw PeerLost("comm", {.what = "rank 1 went away"});
    sleep_for_ever();
  });
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.errors, rank_one(result) + "failed: [comm] rank 2 is absent\n");
}

TEST(Cause, IsTheLostPeerWhereNothingBetterTurnsUp) {
  const auto result = launch_ranks(2, [](int rank) {
    if (rank == 1) throw PeerLost("comm", {.what = "rank 7 went away"});
    sleep_for_ever();
  });
  EXPECT_EQ(result.errors, rank_one(result) + "failed: [comm] rank 7 went away\n");
  EXPECT_LE(result.took, kStopLimit);
}

TEST(FailureFile, TellsWhoFailedAndHowTheOthersEnded) {
  LauncherProcess launcher([](LaunchOptions options) {
    options.nprocs = 2;
    return launch_forked(options, [] {
      rank_status().optimizer_step = 17;
      fail_in_second_collective(FaultKind::kKill, this_rank());
      return 0;
    });
  });
  const auto result = launcher.wait();
  const auto json = test::json_of(launcher.run_dir() / "failure.json");
  EXPECT_EQ(json["rank"], 1);
  EXPECT_EQ(json["node"], 0);
  EXPECT_EQ(json["pid"], result.pids.at(1));
  EXPECT_EQ(json["signal"], SIGKILL);
  EXPECT_EQ(json["signal_name"], "SIGKILL");
  EXPECT_FALSE(json.contains("exit_code"));
  EXPECT_EQ(json["collective"], "all_reduce");
  EXPECT_EQ(json["sequence"], 2);
  EXPECT_EQ(json["in_collective"], true);
  EXPECT_EQ(json["step"], 17);
  EXPECT_EQ("lockstep: " + json["message"].get<std::string>() + "\n", result.errors);
  ASSERT_EQ(json["others"].size(), 1u);
  EXPECT_EQ(json["others"][0]["rank"], 0);
  EXPECT_EQ(json["others"][0]["signal"], SIGTERM);
  EXPECT_EQ(json["others"][0]["stopped_by_launcher"], true);
  EXPECT_FALSE(exists(launcher.run_dir() / "failure.json.tmp"));
}

TEST(FailureFile, KeepsTheWholeErrorWhateverItsBytes) {
  LauncherProcess launcher([](LaunchOptions options) {
    return launch_forked(
        options, [] { return run_rank([] { throw DataError("data", {.what = "bad \xff\nline 2"}); }); });
  });
  EXPECT_EQ(launcher.wait().status, 1);
  const auto json = test::json_of(launcher.run_dir() / "failure.json");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_THAT(json["error"].get<std::string>(), HasSubstr("line 2"));
}

TEST(FailureFile, OfAnEarlierRunIsRemoved) {
  LauncherProcess launcher([](LaunchOptions options) {
    testing::write_file(options.run_dir / "failure.json", "{}");
    return launch_forked(options, [] { return 0; });
  });
  EXPECT_EQ(launcher.wait().status, 0);
  EXPECT_FALSE(exists(launcher.run_dir() / "failure.json"));
}

TEST(RunRank, PrintsItsErrorWhereNobodySupervises) {
  ::testing::internal::CaptureStderr();
  const int status = run_rank([] { throw std::runtime_error("alone"); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "lockstep: alone\n");
  EXPECT_EQ(status, 1);
  EXPECT_EQ(run_rank([] {}), 0);
  set_outcome(RankOutcome::kRunning);
}

}  // namespace
}  // namespace lockstep
