// Tells other processes of this machine that a folder is at work.
//
// The lock is flock(2): the kernel lifts it when the process ends, however it ends, and neither a process id
// that is used again nor one of another container can be mistaken for its holder. Other machines do not see
// it, wherever the folder lies; that is why siblings of checkpoints have the machine in their name.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep::detail {

/// Makes `folder`, locked from the beginning. Empty, with errno set, when it cannot be made; also when
/// somebody found it before it was locked and removed it (ENOENT, EWOULDBLOCK or 0): then another name may be
/// tried.
LOCKSTEP_API UniqueFd make_locked_folder(const std::filesystem::path& folder);

/// Locks `folder` against removal as long as the result lives; several may. Does not wait. Empty, with errno
/// set, when it is not there or being removed.
LOCKSTEP_API UniqueFd lock_for_use(const std::filesystem::path& folder);

/// The same for who will remove or rename it: empty while anybody uses it, or where there are no locks.
LOCKSTEP_API UniqueFd lock_for_removal(const std::filesystem::path& folder);

/// Whether `folder` is the one that was locked.
LOCKSTEP_API bool is_locked_one(const UniqueFd& lock, const std::filesystem::path& folder);

}  // namespace lockstep::detail
