// What nodes have of local checkpoints.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/local_checkpoints.h"

namespace lockstep::detail {

/// "step=N".
std::string name_of_local(std::int64_t global_step);
/// Whether the last part of `folder` is such a name: neither a draft, nor anything else.
bool is_name_of_local(const std::filesystem::path& folder);

/// Those of `runs`, which are rank 0's, below `root`, which is this rank's; the latest first. Collective,
/// blocking.
std::vector<LocalCandidate> find_local(const std::filesystem::path& root,
                                       const std::vector<std::string>& runs, const FolderNodes& nodes,
                                       const Communicator& communicator);

/// The files of `candidate` that no node has, for people; empty: none. Collective, blocking.
/// @throws as read_together(), of a manifest that can no longer be read
std::string lost_files(const std::filesystem::path& root, const LocalCandidate& candidate,
                       const FolderNodes& nodes, const Communicator& communicator);

/// Removes what writers in `folder` have left that were killed. Not Collective.
void remove_unfinished(const std::filesystem::path& folder);

}  // namespace lockstep::detail
