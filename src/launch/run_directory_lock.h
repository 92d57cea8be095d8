// A run directory belongs to one run of this machine at a time.
#pragma once

#include <filesystem>
#include <memory>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep::launch {

/// Shared by all Trainers and Fabrics of this process that use one folder. Null: nothing is held.
using RunDirectoryLock = std::shared_ptr<const UniqueFd>;

/// Holds `folder` for this process as long as the result lives. Waits for up to five seconds, as the run of
/// another process may be just ending. Returns null where `folder` is empty, or its file system has no locks.
/// Not Collective: rank 0 calls it.
/// @throws ConfigError when another process holds the folder
LOCKSTEP_API RunDirectoryLock hold_run_directory(const std::filesystem::path& folder);

}  // namespace lockstep::launch
