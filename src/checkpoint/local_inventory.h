// What nodes have of local checkpoints, in folders that are this user's alone.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/file_pieces.h"
#include "checkpoint/folder_nodes.h"

namespace lockstep::detail {

/// A local checkpoint that nodes have parts of, as all ranks know it.
struct LocalCandidate {
  std::string place;                             ///< below the folder of each node: RUN/step=N
  std::string checksum;                          ///< of its manifest
  std::filesystem::file_time_type written = {};  ///< by rank 0's clock, on all nodes
  int world_size = 0;
  std::size_t files = 0;              ///< how many it has
  std::map<int, FileList> held = {};  ///< those that are there whole, by node
};

/// What others may not do with a folder.
inline constexpr mode_t kNobodyElse = 077;        ///< nothing at all
inline constexpr mode_t kNobodyElseWrites = 022;  ///< change what is in it

/// Makes `folder` with mode 0700, unless it is there; the folder above must be. @throws IoError where it
/// cannot be made; ConfigError where what has the name is a link, no folder, another user's, or others may do
/// `forbidden`
void make_private_folder(const std::filesystem::path& folder, mode_t forbidden = kNobodyElse);

/// Whether `folder` is there, and such a one.
bool is_private_folder(const std::filesystem::path& folder);

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
