// A rank that is killed is noticed by all others, in every collective, long before the timeout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include <lockstep/base/env.h>
#include <lockstep/testing/run_ranks.h>

#include "comm/comm_rank_process.h"
#include "comm/listener.h"

namespace lockstep {
namespace {

using std::chrono::steady_clock;
using ::testing::AllOf;
using testing::CommRankProcess;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kDeadline = std::chrono::seconds(50);  // the ranks' own timeout is longer

/// The signals that a thread blocks, by the names of this process's threads.
std::multimap<std::string, std::uint64_t> blocked_signals() {
  std::multimap<std::string, std::uint64_t> blocked;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string name;
    for (std::string word; status >> word;) {
      if (word == "Name:") std::getline(status >> std::ws, name);
      if (word == "SigBlk:" && status >> word) blocked.emplace(name, std::stoull(word, nullptr, 16));
    }
  }
  return blocked;
}

// A write to a rank that died must fail, not end the process, as SIGPIPE does by default.
TEST(BrokenPipes, AreErrorsInEveryThreadOfGloo) {
  testing::run_ranks(2,
                     [](const Communicator& comm) {
                       comm.barrier();
                       int threads = 0;
                       for (const auto& [name, blocked] : blocked_signals()) {
                         if (name.find("gloo") == std::string::npos) continue;
                         ++threads;
                         EXPECT_TRUE(blocked & (std::uint64_t{1} << (SIGPIPE - 1))) << name;
                       }
                       EXPECT_GE(threads, 2);
                       comm.barrier();
                     },
                     {.backend = "gloo"});
}

class KilledRank : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(In, KilledRank,
                         ::testing::Values("all_reduce", "reduce", "broadcast", "all_gather",
                                           "all_gather_list", "gather", "scatter", "reduce_scatter",
                                           "all_to_all", "all_to_all_list", "barrier", "send", "recv",
                                           "async", "backward", "monitored_barrier"),
                         [](const auto& test) { return test.param; });

std::string name_in_errors(const std::string& name) {
  if (name == "async" || name == "backward") return "all_reduce";
  if (name == "send" || name == "recv") return "send and recv";
  if (name.ends_with("_list")) return name.substr(0, name.size() - 5);
  return name;
}

TEST_P(KilledRank, IsPeerLostForTheOthers) {
  env::set("OMP_NUM_THREADS", "1");
  const auto port = std::to_string(test::free_port());
  const auto deadline = steady_clock::now() + kDeadline;
  std::vector<std::unique_ptr<CommRankProcess>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<CommRankProcess>(
        std::vector<std::string>{GetParam(), std::to_string(rank), "3", port}));
  }
  const auto collective = name_in_errors(GetParam());
  for (const std::size_t rank : {0, 1}) {
    EXPECT_THAT(ranks[rank]->output(deadline),
                AllOf(StartsWith("PeerLost [comm] rank 2 is gone"),
                      HasSubstr("at rank " + std::to_string(rank) + ", in " + collective)));
  }
  EXPECT_EQ(ranks[2]->output(deadline), "");
}

}  // namespace
}  // namespace lockstep
