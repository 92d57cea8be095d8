// A node of a job with several: round after round, as the rendezvous says.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <lockstep/launch/run_program.h>

#include "launch/forked_ranks.h"
#include "launch/job_store.h"
#include "launch/launcher_events.h"
#include "launch/rank_observer.h"

namespace lockstep::launch {

/// One start of this node's ranks.
struct Attempt {
  int number = 0;    ///< from 0
  int restarts = 0;  ///< after failures, so far
  const StoreAccess* store = nullptr;
  RankObserver* observer = nullptr;  ///< beside those that there always are; may be null
};

/// Starts the ranks as `options.launch` says, and blocks until they have ended.
using AttemptRunner = std::function<LaunchEnd(const ProgramOptions& options, const Attempt& attempt)>;

/// The secret that LOCKSTEP_JOB_TOKEN holds, if it is set.
std::optional<std::string> job_token();

/// Meets the other nodes at `options.rendezvous`, hosting it where that is this node's part, and runs rounds
/// until the job is over. Blocks; `events` are heeded also while no ranks run.
/// @returns the exit code of the job
/// @throws ConfigError when the others are of another job or differ in flags; Timeout when nobody hosts;
///   CommError when this node must, and cannot
int run_rounds(const ProgramOptions& options, const AttemptRunner& run, const LauncherEvents& events);

}  // namespace lockstep::launch
