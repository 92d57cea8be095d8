// Which rank is to blame, and the words for it.
#pragma once

#include <span>
#include <string>

#include <lockstep/base/rank_status.h>

#include "launch/rank_process.h"
#include "launch/status_table.h"

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

/// Whether the rank ended well before its work did, as exit(0) does. Nobody's fault as long as no other
/// rank misses it.
bool left_early(const RankProcess& process, const RankStatus& status);

/// A rank that is alive and waits to join all ranks of the job, in a join that `process`, whose exit code was
/// 0, has not begun. Null: nobody does.
const RankProcess* who_waits_to_join(const RankProcess& process, std::span<const RankProcess> ranks,
                                     const StatusTable& statuses);

/// First line of the error that the rank left in its slot; empty when it left none.
std::string error_line(const RankStatus& status);

/// "SIGKILL" for 9.
std::string signal_name(int signal);

/// `rank 1 (node 0, pid 77) killed by SIGKILL in all_reduce seq 5`. Of a program that is not lockstep's,
/// which does not write to its slot, nobody knows where it was.
std::string describe_end(const RankProcess& process, int node, const RankStatus& status,
                         bool is_written = true);

/// For a rank that waited in vain: `; waiting for rank 1 (after all_reduce seq 19)`, all those of `ranks`
/// that have not come to its last collective. Else empty.
std::string describe_wait(const RankProcess& waiting, std::span<const RankProcess> ranks,
                          const StatusTable& statuses);

}  // namespace lockstep::launch
