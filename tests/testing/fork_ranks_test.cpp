// Forked ranks: what they return and how they fail.
#include <lockstep/testing/fork_ranks.h>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using testing::FaultPlace;
using ::testing::Field;
using testing::fork_ranks;
using ::testing::HasSubstr;
using testing::RankResult;
using ::testing::ThrowsMessage;
using namespace std::chrono_literals;

LOCKSTEP_RANK_BODY(sum_of_ranks)(Communicator comm, std::string argument)->std::string {
  const auto sum = at::full({}, comm.rank() + 1);
  comm.all_reduce(sum);
  return argument + std::to_string(sum.item<int>());
}

// One collective per step, as a training loop has.
LOCKSTEP_RANK_BODY(five_steps)(Communicator comm, std::string)->std::string {
  for (int step = 1; step <= 5; ++step) {
    testing::fault_point(step * 100);
    comm.all_reduce(at::ones({3}));
  }
  return "done";
}

class ForkRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ForkRanks, ::testing::Values(1, 2, 4));

TEST_P(ForkRanks, ReturnTheirResultsByRank) {
  const auto start = std::chrono::steady_clock::now();
  const auto ranks = fork_ranks(GetParam(), "sum_of_ranks", "sum ");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%d ranks: %.1f ms per rank\n", GetParam(), took.count() / GetParam());
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(GetParam()));
  const auto sum = std::to_string(GetParam() * (GetParam() + 1) / 2);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.result, "sum " + sum);
    EXPECT_EQ(rank.outcome, RankOutcome::kDone);
    EXPECT_EQ(rank.error, "");
    EXPECT_EQ(rank.exit_code, 0);
    EXPECT_EQ(rank.signal, 0);
    EXPECT_FALSE(rank.was_stuck);
  }
}

LOCKSTEP_RANK_BODY(long_result)(Communicator comm, std::string argument)->std::string {
  return argument + std::string(1, '\0') + std::string(1'000'000, static_cast<char>('a' + comm.rank()));
}

TEST(ForkedRanks, ReturnAnyBytes) {
  const auto argument = std::string(300'000, '\xff');
  const auto ranks = fork_ranks(2, "long_result", argument);
  EXPECT_TRUE(ranks[1].result == argument + std::string(1, '\0') + std::string(1'000'000, 'b'));
}

LOCKSTEP_RANK_BODY(own_process)(Communicator comm, std::string)->std::string {
  EXPECT_EQ(env::get("RANK"), std::to_string(comm.rank()));
  EXPECT_EQ(env::get("WORLD_SIZE"), std::to_string(comm.size()));
  EXPECT_EQ(at::get_num_threads(), 1);
  env::set("LOCKSTEP_TEST_OF_RANK", "1");
  torch::manual_seed(static_cast<std::uint64_t>(comm.rank()));
  comm.barrier();
  return std::to_string(::getpid()) + ' ' + std::to_string(at::rand({}).item<double>());
}

TEST(ForkedRanks, ShareNoStateWithTheTest) {
  const auto ranks = fork_ranks(2, "own_process");
  EXPECT_NE(std::stoi(ranks[0].result), std::stoi(ranks[1].result));
  EXPECT_NE(ranks[0].result, ranks[1].result);
  EXPECT_EQ(env::get("LOCKSTEP_TEST_OF_RANK"), std::nullopt);
  EXPECT_EQ(env::get("WORLD_SIZE"), std::nullopt);
}

TEST(ForkedRanks, MayBeAskedForByManyThreads) {
  at::rand({64, 64}).mm(at::rand({64, 64}));  // the test may have threads of its own by now
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([i] {
      const auto ranks = fork_ranks(2, "sum_of_ranks", std::to_string(i) + ' ');
      EXPECT_THAT(ranks, Each(Field(&RankResult::result, std::to_string(i) + " 3")));
    });
  }
  for (auto& thread : threads) thread.join();
}

LOCKSTEP_RANK_BODY(rank_one_asserts)(Communicator comm, std::string)->std::string {
  EXPECT_NE(comm.rank(), 1) << "this is rank one";
  std::thread([&] { EXPECT_LT(comm.rank(), 2) << "in a thread"; }).join();
  comm.barrier();
  return "";
}

TEST(ForkedRanks, FailedAssertionsFailTheTest) {
  EXPECT_THAT([] { fork_ranks(3, "rank_one_asserts"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("assertions failed"), HasSubstr("\nrank 1: "),
                                         HasSubstr("fork_ranks_test.cpp:"), HasSubstr("this is rank one"),
                                         HasSubstr("\nrank 2: "), HasSubstr("in a thread"))));
}

LOCKSTEP_RANK_BODY(rank_one_throws)(Communicator comm, std::string)->std::string {
  if (comm.rank() == 1) throw DataError("test", {.what = "no such sample"});
  comm.barrier();
  return "";
}

TEST(ForkedRanks, ReturnTheirErrors) {
  const auto ranks = fork_ranks(3, "rank_one_throws");
  EXPECT_EQ(ranks[1].outcome, RankOutcome::kFailed);
  EXPECT_EQ(ranks[1].error, "[test] no such sample");
  EXPECT_EQ(ranks[1].exit_code, 1);
  for (const int peer : {0, 2}) {
    EXPECT_EQ(ranks[peer].outcome, RankOutcome::kPeerFailed) << ranks[peer].error;
    EXPECT_EQ(ranks[peer].whereabouts.substr(0, 14), "after barrier ");
  }
}

// The victim is rank 1 of 3, in the third of five collectives. Those who only waited for it tell the same.
std::vector<RankResult> with_fault(FaultKind kind, FaultPlace place = FaultPlace::kCollective,
                                   std::int64_t step = 3) {
  const bool stays = kind == FaultKind::kStop || kind == FaultKind::kHang;
  auto ranks = fork_ranks(3, "five_steps", "",
                          {.comm_timeout = stays ? 4s : 30s, .fault = {kind, 1, step}, .fault_place = place});
  for (const int peer : {0, 2}) {
    EXPECT_EQ(ranks[peer].outcome, stays ? RankOutcome::kTimedOut : RankOutcome::kPeerFailed)
        << ranks[peer].error;
    EXPECT_EQ(ranks[peer].exit_code, 1);
    // Who is told of the victim's end before it comes to the third collective does not begin it.
    EXPECT_THAT(ranks[peer].whereabouts,
                AnyOf("after all_reduce seq 3", stays ? "after all_reduce seq 3" : "after all_reduce seq 2"));
  }
  return ranks;
}

TEST(ForkedRankFault, Kill) {
  const auto victim = with_fault(FaultKind::kKill)[1];
  EXPECT_EQ(victim.signal, SIGKILL);
  EXPECT_EQ(victim.outcome, RankOutcome::kRunning);
  EXPECT_EQ(victim.whereabouts, "in all_reduce seq 3");
  EXPECT_FALSE(victim.was_stuck);
}

TEST(ForkedRankFault, Exit) {
  const auto victim = with_fault(FaultKind::kExit)[1];
  EXPECT_EQ(victim.exit_code, 3);
  EXPECT_EQ(victim.outcome, RankOutcome::kRunning);
}

TEST(ForkedRankFault, Throw) {
  const auto victim = with_fault(FaultKind::kThrow)[1];
  EXPECT_EQ(victim.outcome, RankOutcome::kFailed);
  EXPECT_THAT(victim.error, HasSubstr("injected fault at step 3"));
  EXPECT_EQ(victim.whereabouts, "after all_reduce seq 3");
}

TEST(ForkedRankFault, Abort) { EXPECT_EQ(with_fault(FaultKind::kAbort)[1].signal, SIGABRT); }

TEST(ForkedRankFault, Stop) {
  const auto victim = with_fault(FaultKind::kStop)[1];
  EXPECT_TRUE(victim.was_stuck);
  EXPECT_EQ(victim.signal, SIGKILL);
  EXPECT_EQ(victim.whereabouts, "in all_reduce seq 3");
}

TEST(ForkedRankFault, Hang) {
  const auto victim = with_fault(FaultKind::kHang)[1];
  EXPECT_TRUE(victim.was_stuck);
  EXPECT_EQ(victim.whereabouts, "in all_reduce seq 3");
}

TEST(ForkedRankFault, AtAPointOfTheBody) {
  const auto victim = with_fault(FaultKind::kKill, FaultPlace::kPoint, 300)[1];
  EXPECT_EQ(victim.signal, SIGKILL);
  EXPECT_EQ(victim.whereabouts, "after all_reduce seq 2");
}

TEST(ForkedRankFault, ThatDoesNotHappenIsAFailure) {
  EXPECT_THAT(
      [] {
        fork_ranks(2, "five_steps", "", {.fault = {FaultKind::kKill, 1, 6}});
      },
      ThrowsMessage<Error>(HasSubstr("rank 1 did not come to step 6 of its fault")));
}

LOCKSTEP_RANK_BODY(rank_one_sleeps)(Communicator comm, std::string)->std::string {
  comm.all_reduce(at::ones({}));
  if (comm.rank() == 2) throw DataError("test", {.what = "lost"});
  while (comm.rank() == 1) std::this_thread::sleep_for(1s);
  try {
    comm.barrier();
  } catch (const PeerLost&) {
    ::pause();
  }
  return "";
}

TEST(ForkedRanks, StuckOnesAreNamed) {
  EXPECT_THAT([] { fork_ranks(3, "rank_one_sleeps", "", {.deadline = 4s}); },
              ThrowsMessage<Timeout>(AllOf(HasSubstr("\"rank_one_sleeps\" not done within 4000 ms"),
                                           HasSubstr("rank 0 after barrier seq 2, rank 1 after all_reduce "
                                                     "seq 1, rank 2 failed: [test] lost"))));
}

LOCKSTEP_RANK_BODY(rank_one_stays_away)(Communicator comm, std::string)->std::string {
  while (comm.rank() == 1) std::this_thread::sleep_for(1s);
  comm.barrier();
  return "";
}

TEST(ForkedRanks, StuckOnesAreNamedWithTheirCollective) {
  EXPECT_THAT(
      [] { fork_ranks(2, "rank_one_stays_away", "", {.deadline = 3s}); },
      ThrowsMessage<Timeout>(HasSubstr("rank 0 in barrier seq 1, rank 1 before its first collective")));
}

TEST(ForkedRanks, OneThatDoesNotStartIsAFailure) {
  for (const auto kind : {FaultKind::kExit, FaultKind::kKill, FaultKind::kThrow}) {
    EXPECT_THAT(([kind] {
                  fork_ranks(3, "five_steps", "", {.fault = {kind, 2, 0}});
                }),
                ThrowsMessage<Error>(AllOf(HasSubstr("rank 2 did not start"), HasSubstr("rank 0 joining"))));
  }
}

LOCKSTEP_RANK_BODY(twice)(Communicator, std::string)->std::string { return ""; }
const testing::RegisteredRankBody second_of_its_name("twice", lockstep_rank_body_twice);

TEST(ForkedRanks, RefuseWhatCannotBeRun) {
  EXPECT_THAT(
      [] { fork_ranks(2, "no_such_body"); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("\"no_such_body\" is unknown"), HasSubstr("five_steps"))));
  EXPECT_THAT([] { fork_ranks(2, "twice"); }, ThrowsMessage<ConfigError>(HasSubstr("more than once")));
  EXPECT_THAT([] { fork_ranks(0, "five_steps"); }, ThrowsMessage<ConfigError>(HasSubstr("number of ranks")));
  EXPECT_THAT(
      [] {
        fork_ranks(2, "five_steps", "", {.fault = {FaultKind::kKill, 2, 1}});
      },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("fault.rank"), HasSubstr("0..1"))));
  EXPECT_THAT([] { testing::start_zygote(); },
              ThrowsMessage<ConfigError>(AnyOf(HasSubstr("a zygote already"), HasSubstr("several threads"))));
  std::thread([] {
    EXPECT_THAT([] { testing::start_zygote(); }, ThrowsMessage<ConfigError>(HasSubstr("several threads")));
  }).join();
}

}  // namespace
}  // namespace lockstep
