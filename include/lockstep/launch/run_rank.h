// The outermost frame of a rank.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>

#include <lockstep/base/export.h>

namespace lockstep {

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
