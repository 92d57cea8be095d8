// The life of a rank after its fork from the zygote.
#pragma once

#include "testing/rank_job.h"
#include "testing/rank_slot.h"

namespace lockstep::testing {

/// All that a rank needs to know. Everything outlives it: it has a copy of the zygote's.
struct ForkedRank {
  const RankJob& job;
  const AssertionCatcher& catcher;
  RankBody body;
  int rank;
  RankSlot& slot;
  int report_fd;  ///< a file for its RankReport
  int port;       ///< on which rank 0 listens
  int listen_fd;  ///< the socket that does
};

/// Runs the body as rank `self` and ends the process. Its exit code is 1 for an exception, else 0.
[[noreturn]] void run_forked_rank(const ForkedRank& self) noexcept;

/// The body registered as `name`.
/// @throws ConfigError if there is none, or more than one
RankBody find_rank_body(const std::string& name);

}  // namespace lockstep::testing
