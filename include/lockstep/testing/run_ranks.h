// Ranks as threads of this process, for tests of collectives and engines.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/comm/reduce_op.h>

namespace lockstep::testing {

/// How run_ranks() runs.
struct RunRanksOptions {
  std::chrono::milliseconds deadline = std::chrono::minutes(5);      ///< for all ranks to return
  std::chrono::milliseconds comm_timeout = std::chrono::minutes(2);  ///< Communicator::timeout()
  Reduction reduction = Reduction::kOrdered;                         ///< order of sums
  bool check_collectives = true;                                     ///< as CommOptions
  std::string backend = "auto";                                      ///< as CommOptions
};

/// Runs `body` once per rank, each in a thread of its own with a communicator of `ranks` ranks that
/// are connected over the loopback interface. Blocks until all have returned. Threads share the
/// generator, the environment and the working directory: bodies may not change those.
/// @throws what the first rank to fail threw; Timeout naming the ranks that are stuck, and in which
///   collective, when the deadline passes: their threads are left behind, holding a copy of `body`
LOCKSTEP_API void run_ranks(int ranks, std::function<void(Communicator)> body,
                            const RunRanksOptions& options = {});

}  // namespace lockstep::testing
