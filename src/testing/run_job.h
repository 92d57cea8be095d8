// One call of fork_ranks() in the zygote: forks the ranks, waits for them, tells how they ended.
#pragma once

#include "testing/rank_job.h"

namespace lockstep::testing {

/// Blocks until all ranks have ended or the deadline has passed; none is left then. SIGCHLD must be blocked.
/// Never throws: what went wrong is in the report.
JobReport run_job(const RankJob& job, const AssertionCatcher& catcher) noexcept;

}  // namespace lockstep::testing
