// Monitored barriers among processes that die, stop or call something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>

#include <lockstep/base/error.h>
#include <lockstep/testing/fork_ranks.h>

#include "comm/communicator_contract.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using testing::fork_ranks;
using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::StartsWith;

std::string ranks_of(const CommError& error) {
  std::string text;
  for (const int rank : error.ranks()) text += std::to_string(rank) + " ";
  return text;
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const PeerLost& error) {
    return "PeerLost " + ranks_of(error) + error.what();
  } catch (const Timeout& error) {
    return "Timeout " + ranks_of(error) + error.what();
  } catch (const CollectiveMismatch& error) {
    return "CollectiveMismatch " + ranks_of(error) + error.what();
  } catch (const CommError& error) {
    return "CommError " + ranks_of(error) + error.what();
  }
  return "none";
}

LOCKSTEP_RANK_BODY(monitored_barrier_without_one)(Communicator comm, std::string)->std::string {
  comm.barrier();
  testing::fault_point(1);
  return error_of([&] { comm.monitored_barrier(seconds(600)); });
}

// Rank 0, which serves the store, among them.
TEST(MonitoredBarrier, AKilledRankIsLostAtOnce) {
  for (const int victim : {0, 2}) {
    const auto begin = steady_clock::now();
    const auto ranks = fork_ranks(3, "monitored_barrier_without_one", {},
                                  {.fault = {.kind = FaultKind::kKill, .rank = victim, .step = 1},
                                   .fault_place = testing::FaultPlace::kPoint});
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(ranks[static_cast<std::size_t>(rank)].result,
                  StartsWith("PeerLost " + std::to_string(victim) + " "));
    }
    EXPECT_LT(steady_clock::now() - begin, seconds(30));
  }
}

LOCKSTEP_RANK_BODY(short_monitored_barrier)(Communicator comm, std::string)->std::string {
  comm.barrier();
  testing::fault_point(1);
  return error_of([&] { comm.monitored_barrier(seconds(1)); });
}

TEST(MonitoredBarrier, AStoppedRankIsNamedWhenTheTimeIsOver) {
  const auto ranks = fork_ranks(3, "short_monitored_barrier", {},
                                {.fault = {.kind = FaultKind::kStop, .rank = 2, .step = 1},
                                 .fault_place = testing::FaultPlace::kPoint});
  for (const std::size_t rank : {0, 1}) {
    EXPECT_THAT(ranks[rank].result, AllOf(StartsWith("Timeout 2 "), HasSubstr("rank 2 does not answer")));
  }
}

TEST(MonitoredBarrier, AgainstAnotherCollectiveIsAMismatch) {
  run_ranks(2, [](const Communicator& comm) {
    comm.barrier();
    const auto error = error_of(
        [&] { comm.rank() == 0 ? comm.monitored_barrier(seconds(600)) : comm.all_reduce(at::ones({3})); });
    EXPECT_THAT(error, AllOf(StartsWith("CollectiveMismatch 0 1 "), HasSubstr("rank 0: monitored_barrier"),
                             HasSubstr("rank 1: all_reduce(sum) of float32 [3]")));
  });
}

TEST(MonitoredBarrier, NamesAllThatAreMissing) {
  std::latch both_told(2);
  run_ranks(4, [&](const Communicator& comm) {
    if (comm.rank() % 2 == 0) {
      EXPECT_THAT(error_of([&] { comm.monitored_barrier(seconds(2)); }), StartsWith("Timeout 1 3 "));
      both_told.count_down();
    }
    both_told.wait();  // another collective would be a mismatch after 1 s
    comm.barrier();
  });
}

}  // namespace
}  // namespace lockstep
