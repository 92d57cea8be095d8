// The side of a process that a launcher started: ours, torchrun or any other.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
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

// The outermost frame of a rank.

/// Runs `body` as this rank's work, notes for the supervisor how it ended and returns the exit code:
/// 0 when it returned, 2 for a ConfigError, that of the failed rank for a ProcessError, 1 for any other
/// exception. The supervisor prints the error of the rank that failed first; only where none of ours is
/// there, this prints it to stderr and, if the process is no rank of anyone's, writes failure.json to
/// `run_dir` (empty: nowhere).
LOCKSTEP_API int run_rank(const std::function<void()>& body, const std::filesystem::path& run_dir = {});

/// Notes for the supervisor, as run_rank() does, that this rank fails with `error`: whether it is a cause
/// or the echo of another rank's failure.
LOCKSTEP_API void note_failure(const std::exception& error);

}  // namespace lockstep
