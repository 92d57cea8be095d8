// The side of a process that a launcher started: ours, torchrun or any other.
#pragma once

#include <optional>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep {

/// True when this process is a rank that a launcher started, so that no ranks must be started here.
/// @throws ConfigError when the launcher's variables are malformed
LOCKSTEP_API bool started_by_launcher();

/// This rank's number in the job as text, for messages; nothing where nobody tells it. Does not throw: what
/// is wrong with the launcher's variables is said elsewhere.
LOCKSTEP_API std::optional<std::string> told_rank();

/// The number of ranks on this node, as the launcher tells; nothing where none does.
/// @throws ConfigError when it is malformed
LOCKSTEP_API std::optional<int> local_world_size();

/// The threads that this rank should use for its tensors: OMP_NUM_THREADS where that is set, as our own
/// launcher and torchrun do, else the processors it may use divided by the ranks of this node. OpenMP reads
/// the variable when it is loaded, which in a forked rank was before the fork: tell it by
/// at::set_num_threads().
/// @throws ConfigError when the launcher's variables are malformed
LOCKSTEP_API int threads_per_rank();

/// Names a process that was started by a launcher rank-N and, under launch_reexec(), lets its supervisor
/// read what it does (base/rank_status.h). Call first thing in main(), before threads start. Does nothing
/// in other processes and when called again.
/// @throws ConfigError when the launcher's variables are malformed
LOCKSTEP_API void join_launcher();

}  // namespace lockstep
