// Ranks that die, or are stopped, while groups are made and closed: nobody waits for them for long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/testing/fork_ranks.h>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::FaultPlace;
using testing::fork_ranks;
using ::testing::StartsWith;

constexpr auto kNamingDeadline = 25s;

/// What `act` throws and how long it took: "PeerLost {2} soon".
std::string outcome_of(const std::function<void()>& act) {
  const auto start = steady_clock::now();
  const auto in_words = [&](const std::string& kind, const std::vector<int>& ranks) {
    std::string text = kind + " {";
    for (const int rank : ranks) text += (text.back() == '{' ? "" : ", ") + std::to_string(rank);
    return text + (steady_clock::now() - start < kNamingDeadline ? "} soon" : "} late");
  };
  try {
    act();
  } catch (const PeerLost& error) {
    return in_words("PeerLost", error.ranks()) + ": " + error.what();
  } catch (const CommError& error) {
    return in_words("CommError", error.ranks()) + ": " + error.what();
  }
  return in_words("ok", {});
}

// The last rank says that it will take part in making the group, and dies.
LOCKSTEP_RANK_BODY(last_rank_dies_while_a_group_is_made)(Communicator comm, std::string)->std::string {
  if (comm.rank() == 2) {
    comm.all_gather_bytes("{0, 1, 2}");
    std::raise(SIGKILL);
  }
  return outcome_of([&] { comm.new_group({0, 1, 2}); });
}

TEST(LostRank, IsNamedWhileAGroupIsMade) {
  const auto ranks = fork_ranks(3, "last_rank_dies_while_a_group_is_made", "");
  EXPECT_THAT(ranks[0].result, StartsWith("PeerLost {2} soon"));
  EXPECT_THAT(ranks[1].result, StartsWith("PeerLost {2} soon"));
}

LOCKSTEP_RANK_BODY(close_after_a_loss)(Communicator comm, std::string)->std::string {
  comm.barrier();
  if (comm.rank() == 2) std::raise(SIGKILL);
  std::this_thread::sleep_for(2s);  // in which the loss becomes known, while nothing is called
  const auto start = steady_clock::now();
  comm.close();
  return steady_clock::now() - start < kNamingDeadline ? "closed at once" : "closed late";
}

TEST(LostRank, IsNotWaitedForInClose) {
  const auto ranks = fork_ranks(3, "close_after_a_loss", "");
  EXPECT_EQ(ranks[0].result, "closed at once");
  EXPECT_EQ(ranks[1].result, "closed at once");
}

LOCKSTEP_RANK_BODY(close_without_rank_0)(Communicator comm, std::string)->std::string {
  comm.barrier();
  testing::fault_point(1);
  std::this_thread::sleep_for(500ms);  // so that rank 0 has stopped
  return outcome_of([&] { comm.close(); });
}

TEST(StoppedRank0, IsNotWaitedForInClose) {
  testing::ForkRanksOptions options;
  options.fault = {FaultKind::kStop, 0, 1};
  options.fault_place = FaultPlace::kPoint;
  const auto ranks = fork_ranks(3, "close_without_rank_0", "", options);
  EXPECT_THAT(ranks[1].result, StartsWith("ok {} soon"));
  EXPECT_THAT(ranks[2].result, StartsWith("ok {} soon"));
}

// Groups of groups are made in two threads, that wait for each other's partners in turn.
LOCKSTEP_RANK_BODY(groups_in_two_threads)(Communicator comm, std::string)->std::string {
  const auto one = *comm.new_group({0, 1}), two = *comm.new_group({0, 1});
  const auto make = [](const Communicator& parent) {
    for (int i = 0; i < 20; ++i) parent.new_group({0, 1})->barrier();
  };
  const auto start = steady_clock::now();
  std::jthread other([&] { make(two); });
  make(one);
  other.join();
  return steady_clock::now() - start < 60s ? "made" : "made late";
}

TEST(Groups, AreMadeBesideEachOther) {
  for (const auto& rank : fork_ranks(2, "groups_in_two_threads", ""))
    EXPECT_EQ(rank.result, "made");
}

}  // namespace
}  // namespace lockstep
