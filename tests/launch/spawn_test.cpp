// spawn(): results of rank 0, and how failures of its processes arrive.
#include <lockstep/launch/spawn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/launch/join.h>

#include "cluster/scoped_variables.h"
#include "launch/launcher_process.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Pair {
  int a = 0;
  double b = 0;
};

ProcessError error_of(const std::function<void(int rank)>& fn, int nprocs = 2) {
  try {
    spawn(fn, {.nprocs = nprocs});
  } catch (const ProcessError& error) {
    return error;
  }
  throw std::logic_error("spawn() did not throw");
}

TEST(Spawn, ReturnsWhatRankZeroReturns) {
  const auto sum = [](int rank, int x, double y) { return rank == 0 ? x + y : -1.0; };
  EXPECT_EQ(spawn(sum, std::tuple(1, 0.5), {.nprocs = 3}), 1.5);
  const auto many = [](int rank) { return std::string(3'000'000, rank == 0 ? 'z' : 'o'); };
  EXPECT_EQ(spawn(many, {.nprocs = 2}), std::string(3'000'000, 'z'));
  EXPECT_EQ(spawn([](int) { return std::string(); }, {.nprocs = 1}), "");
  EXPECT_THAT(spawn([](int) { return std::vector<int>{1, 2, 3}; }, {.nprocs = 1}), ElementsAre(1, 2, 3));
  const auto pair = spawn([](int) { return Pair{.a = 7, .b = 0.25}; }, {.nprocs = 2});
  EXPECT_EQ(pair.a, 7);
  EXPECT_EQ(pair.b, 0.25);
}

TEST(Spawn, TellsItsProcessesWhoAndWhereTheyAre) {
  const testing::ScopedVariables none({});
  const auto place = [](int rank) {
    if (env::require_int("RANK") != rank || env::require_int("WORLD_SIZE") != 2)
      throw std::logic_error("who");
    return std::to_string(::getpid()) + " " + env::get("MASTER_ADDR").value() + " " +
           env::get("MASTER_PORT").value();
  };
  const auto text = spawn(place, {.nprocs = 2});
  EXPECT_THAT(text, HasSubstr(" 127.0.0.1 "));
  EXPECT_THAT(text, Not(HasSubstr(std::to_string(::getpid()) + " ")));
  EXPECT_FALSE(env::get("MASTER_PORT"));
}

TEST(Spawn, RethrowsTheErrorOfAProcessAndStopsTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  const auto error = error_of([](int rank) {
    if (rank == 1) throw std::runtime_error("no more apples");
    testing::sleep_for_ever();
  });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 "), HasSubstr("pid "), HasSubstr("no more apples")));
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(error.exit_code(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(Spawn, NamesASignal) {
  const auto error = error_of([](int rank) {
    if (rank == 0) std::raise(SIGKILL);
    testing::sleep_for_ever();
  });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 "), HasSubstr("pid "), HasSubstr("killed by SIGKILL")));
  EXPECT_EQ(error.exit_code(), 128 + SIGKILL);
}

TEST(Spawn, NamesAnExitCode) {
  const auto error = error_of([](int rank) {
    if (rank == 1) std::_Exit(3);
    testing::sleep_for_ever();
  });
  EXPECT_THAT(error.what(), HasSubstr("exited with code 3"));
  EXPECT_EQ(error.exit_code(), 3);
}

TEST(Spawn, TakesExitZeroForSuccessWhereThereIsNoResult) {
  EXPECT_NO_THROW(spawn([](int) { std::_Exit(0); }, {.nprocs = 2}));
  const auto without_result = [] { spawn([](int) -> int { std::_Exit(0); }, {.nprocs = 2}); };
  EXPECT_THAT(without_result,
              ::testing::ThrowsMessage<ProcessError>(HasSubstr("before its function returned")));
}

TEST(Spawn, EndsWithItsCaller) {
  const auto error = error_of([](int rank) {
    if (rank == 0) ::kill(::getppid(), SIGTERM);
    testing::sleep_for_ever();
  });
  EXPECT_THAT(error.what(), HasSubstr("stopped by SIGTERM"));
  EXPECT_EQ(error.exit_code(), 128 + SIGTERM);
}

TEST(Spawn, HandsTheExitCodeOfAProcessToRunRank) {
  const auto spawn_one = [] {
    spawn([](int) { throw ConfigError("test", {.what = "no such flag"}); }, {.nprocs = 1});
  };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_rank(spawn_one), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no such flag"));
}

TEST(Spawn, RefusesBadOptionsThreadsAndNesting) {
  const auto nothing = [](int) {};
  EXPECT_THROW(spawn(nothing, {.nprocs = 0}), ConfigError);
  EXPECT_THAT(error_of([&](int) { spawn(nothing, {.nprocs = 1}); }, 1).what(), HasSubstr("launcher"));
  std::jthread other([](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
  });
  try {
    spawn(nothing, {.nprocs = 1});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("one thread"), HasSubstr("before the first tensor")));
  }
}

}  // namespace
}  // namespace lockstep
