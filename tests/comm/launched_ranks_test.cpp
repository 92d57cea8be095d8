// Communicators in ranks that our own launcher started.
#include <gtest/gtest.h>

#include <lockstep/base/env.h>

#include "comm/comm_rank_process.h"

namespace lockstep {
namespace {

std::string launch(const std::string& name) {
  env::set("OMP_NUM_THREADS", "1");
  return testing::CommRankProcess({name}).output(std::chrono::steady_clock::now() + std::chrono::seconds(50));
}

TEST(LaunchedRanks, JoinAgainAndAgain) { EXPECT_EQ(launch("again"), "ok\n"); }
TEST(LaunchedRanks, StartProgramsThatInheritNothing) { EXPECT_EQ(launch("programs"), "ok\n"); }

}  // namespace
}  // namespace lockstep
