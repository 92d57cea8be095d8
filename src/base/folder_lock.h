// Locks that tell other processes of this machine that a folder is in use.
//
// The lock is flock(2): the kernel lifts it when the process ends, however it ends, and a process id that is
// used again, or one of another container, cannot be mistaken for its holder. Other machines do not see the
// lock, even on a shared file system; that is why siblings of checkpoints contain the name of the machine.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep::detail {

/// Creates `folder` and locks it for use. Empty, with errno set, when it cannot be created; also when another
/// process found it before it was locked and removed it (ENOENT, EWOULDBLOCK or 0): the caller may then try
/// another name.
LOCKSTEP_API UniqueFd make_locked_folder(const std::filesystem::path& folder);

/// Locks `folder` against removal as long as the result lives; several processes may hold this lock. Does not
/// wait. Empty, with errno set, when the folder is missing or being removed.
LOCKSTEP_API UniqueFd lock_for_use(const std::filesystem::path& folder);

/// Locks `folder` against every other lock: for removing or renaming it, or for being the only one who writes
/// in it. Does not wait. Empty, with errno set, when the folder is missing, while another process has a lock
/// (EWOULDBLOCK), or where the file system has no locks.
LOCKSTEP_API UniqueFd lock_alone(const std::filesystem::path& folder);

/// Whether the path `folder` still leads to the folder that was locked.
LOCKSTEP_API bool is_locked_one(const UniqueFd& lock, const std::filesystem::path& folder);

}  // namespace lockstep::detail
