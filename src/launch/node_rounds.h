// A node of a job with several: round after round, as the rendezvous says.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <lockstep/launch/launch_options.h>

#include "launch/forked_ranks.h"
#include "launch/posix.h"
#include "launch/rank_observer.h"
#include "launch/rank_process.h"
#include "rendezvous/tcp_endpoint.h"

namespace lockstep::launch {

// How ranks find the key-value store of their job: LOCKSTEP_STORE=HOST:PORT, and its key in a file that they
// inherit, whose descriptor LOCKSTEP_STORE_TOKEN_FD names. The key is in no file, argument or variable that
// other users could read. LOCKSTEP_STORE_SCOPE keeps the keys of attempts apart.

/// The way to a store.
class StoreAccess {
 public:
  /// @throws Error when the key cannot be put into a file of its own
  StoreAccess(rendezvous::TcpEndpoint endpoint, const std::string& key);

  /// Tells the rank of `plan`, which must start while this lives.
  void add_to(RankPlan& plan, int round) const;

 private:
  rendezvous::TcpEndpoint endpoint_;
  UniqueFd key_file_;
};

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
