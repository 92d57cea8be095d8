// Which files of local checkpoints the nodes have, in folders that belong to this user alone, and how nodes
// get those that they lack.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <lockstep/comm/communicator.h>

#include "checkpoint/node_folders.h"

namespace lockstep::detail {

/// A local checkpoint of which nodes have parts; the same on all ranks.
struct LocalCandidate {
  std::string place;                             ///< below the folder of each node: RUN/step=N
  std::string checksum;                          ///< of its manifest
  std::filesystem::file_time_type written = {};  ///< by rank 0's clock, on all nodes
  int world_size = 0;
  std::size_t files = 0;              ///< how many it has
  std::map<int, FileList> held = {};  ///< the complete files, by node
};

/// The permissions that other users must not have for a folder.
inline constexpr mode_t kNobodyElse = 077;        ///< no access at all
inline constexpr mode_t kNobodyElseWrites = 022;  ///< no changes of its content

/// Creates `folder` with mode 0700, unless it exists; the folder above must exist. @throws IoError where it
/// cannot be created; ConfigError where the path is a link, no folder, or another user's folder, or where
/// other users have a `forbidden` permission
void make_private_folder(const std::filesystem::path& folder, mode_t forbidden = kNobodyElse);

/// Whether `folder` exists and belongs to this user alone.
bool is_private_folder(const std::filesystem::path& folder);

/// "step=N".
std::string name_of_local(std::int64_t global_step);
/// Whether the last part of `folder` is such a name: neither a draft, nor anything else.
bool is_name_of_local(const std::filesystem::path& folder);

/// The local checkpoints of `runs`, of which rank 0's value is used, below `root`, which may differ between
/// ranks; the latest first. Collective, blocking.
std::vector<LocalCandidate> find_local(const std::filesystem::path& root,
                                       const std::vector<std::string>& runs, const FolderNodes& nodes,
                                       const Communicator& communicator);

/// The files of `candidate` that no node has, as text for a message; empty where none is lost. Collective,
/// blocking.
/// @throws as read_together(), of a manifest that can no longer be read
std::string lost_files(const std::filesystem::path& root, const LocalCandidate& candidate,
                       const FolderNodes& nodes, const Communicator& communicator);

/// Removes unfinished files that killed processes have left in `folder`. Not Collective.
void remove_unfinished(const std::filesystem::path& folder);

/// Completes `candidate` on each node, in the folder `target`, with the time at which it was written. Memory:
/// 8 MiB, beside the files. Collective, blocking.
/// @throws on every rank, once all is sent and received: IoError on the rank whose file could not be read or
/// written, CheckpointError naming that rank on the others; CommError
void fetch_files(const std::filesystem::path& target, const LocalCandidate& candidate,
                 const FolderNodes& nodes, const Communicator& communicator);

/// Sends this rank's `files` in `folder` to the next `copies` nodes, and writes what the previous nodes send
/// to `folder`. Each rank exchanges files with the ranks of the same index on other nodes, so that all links
/// are used at once. Memory: 8 MiB for each rank that sends to this one. Collective, blocking.
/// @throws CommError; once all is sent and received, what has failed with a file of this rank, such as
/// IoError
void replicate(const std::filesystem::path& folder, const FileList& files, int copies,
               const FolderNodes& nodes, const Communicator& communicator);

}  // namespace lockstep::detail
