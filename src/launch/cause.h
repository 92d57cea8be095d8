// Which rank is to blame, and the words for it.
#pragma once

#include <string>

#include <lockstep/base/rank_status.h>

#include "launch/rank_process.h"

namespace lockstep::launch {

/// How much a rank's end explains, in rising order. When one rank fails the others soon do, too: their
/// collectives break. Ends below kOwnError may be such echoes.
enum class Blame {
  kNone,        ///< alive, done, or stopped by the supervisor
  kEcho,        ///< lost a peer
  kTimeout,     ///< waited in vain for a peer
  kSilentExit,  ///< an exit code without a word
  kOwnError,    ///< said what went wrong
  kSignal       ///< killed
};

/// How far `process`, whose slot is `status`, is to blame for the end of the run.
Blame blame(const RankProcess& process, const RankStatus& status);

/// First line of the error that the rank left in its slot; empty when it left none.
std::string error_line(const RankStatus& status);

/// "SIGKILL" for 9.
std::string signal_name(int signal);

/// `rank 1 (node 0, pid 77) killed by SIGKILL in all_reduce seq 5`.
std::string describe_end(const RankProcess& process, int node, const RankStatus& status);

}  // namespace lockstep::launch
