// Ranks as processes, for tests for which threads do not suffice: random generators, the environment,
// signals, the death of a rank.
//
// The ranks are forked from a zygote, a copy of the test program made at the start of main(), before any
// tensor and thread: a few milliseconds per rank, where starting the program again takes a second. A zygote
// knows no variable of a test, so what a rank runs is named:
//
//     LOCKSTEP_RANK_BODY(sum_of_ranks)(Communicator comm, std::string) -> std::string {
//       const auto sum = at::full({}, comm.rank());
//       comm.all_reduce(sum);
//       return std::to_string(sum.item<int>());
//     }
//     TEST(AllReduce, Sums) {
//       for (const auto& rank : fork_ranks(4, "sum_of_ranks")) EXPECT_EQ(rank.result, "6");
//     }
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/comm/reduce_op.h>
#include <lockstep/launch/fault.h>

namespace lockstep::testing {

/// Runs a rank's part of a test and returns its failed assertions, for a test framework that counts failures
/// where the test is not. Exceptions of `part` pass.
using AssertionCatcher =
    std::function<void(const std::function<void()>& part, std::vector<std::string>& failed)>;

/// Forks the zygote. Call first thing in main(), with arguments only read; it ends with this process,
/// however that ends. `catcher` may be left out: failed assertions of ranks are then printed by them and
/// fail nothing.
/// @throws ConfigError if this process has threads already, which would be missing in the ranks, or a zygote
LOCKSTEP_API void start_zygote(AssertionCatcher catcher = {});

/// A rank's part of a test.
using RankBody = std::string (*)(Communicator comm, std::string argument);

/// Where ForkRanksOptions::fault takes its step from.
enum class FaultPlace {
  kCollective,  ///< the number of the collective that the rank enters, from 1; 0: before it joins the others
  kPoint        ///< the number that the body gives to fault_point()
};

/// How fork_ranks() runs.
struct ForkRanksOptions {
  std::chrono::milliseconds deadline = std::chrono::minutes(5);      ///< for all ranks to end
  std::chrono::milliseconds comm_timeout = std::chrono::minutes(2);  ///< Communicator::timeout()
  Reduction reduction = Reduction::kOrdered;                         ///< order of sums
  Fault fault = {};                                                  ///< a fault of one of the ranks
  FaultPlace fault_place = FaultPlace::kCollective;                  ///< what `fault.step` counts
};

/// How a rank ended.
struct RankResult {
  std::string result = {};                      ///< what its body returned
  RankOutcome outcome = RankOutcome::kRunning;  ///< kRunning: ended without a report
  std::string error = {};                       ///< text of the exception that left its body
  int exit_code = 0;                            ///< 0 done; 1 exception; else its own
  int signal = 0;                               ///< what killed it, or 0
  bool was_stuck = false;                       ///< killed by fork_ranks(), after its kStop or kHang
  std::string whereabouts = {};                 ///< at its end: "in all_reduce seq 3", see base/rank_status.h
};

/// Runs the body registered as `name` in `ranks` processes that are connected over the loopback
/// interface, with `argument` for each, and returns how they ended, by rank. Blocks. Calls from several
/// threads take turns. In a rank, RANK, WORLD_SIZE, MASTER_PORT and so on are set as by launchers, and
/// tensors use one thread.
/// Errors, signals and exit codes of ranks are results. The rest is a failure, with no rank left behind:
/// @throws Timeout naming the ranks that are stuck, and where, when the deadline passes; Error naming a rank
///   that did not start or did not join, the failed assertions of ranks, or a fault that did not happen;
///   ConfigError for a name that is unknown or registered twice, or without start_zygote()
LOCKSTEP_API std::vector<RankResult> fork_ranks(int ranks, const std::string& name,
                                                const std::string& argument = {},
                                                const ForkRanksOptions& options = {});

/// In a body: a place where the fault of FaultPlace::kPoint happens if this is its rank and step.
/// @throws std::runtime_error for FaultKind::kThrow
LOCKSTEP_API void fault_point(std::int64_t step);

/// For LOCKSTEP_RANK_BODY.
struct LOCKSTEP_API RegisteredRankBody {
  /// Makes `body` known under `name` before main() begins.
  RegisteredRankBody(const char* name, RankBody body);
};

}  // namespace lockstep::testing

/// Defines and registers the body `name`, outside of functions; see the top of this file.
#define LOCKSTEP_RANK_BODY(name)                                                             \
  static auto lockstep_rank_body_##name(::lockstep::Communicator, std::string)->std::string; \
  static const ::lockstep::testing::RegisteredRankBody lockstep_registered_##name(           \
      #name, lockstep_rank_body_##name);                                                     \
  static auto lockstep_rank_body_##name
