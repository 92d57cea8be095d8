// Files of local checkpoints on their way between nodes: to those that keep copies, and to those that lack
// them.
#pragma once

#include <filesystem>

#include <lockstep/comm/communicator.h>

#include "checkpoint/file_pieces.h"
#include "checkpoint/folder_nodes.h"
#include "checkpoint/local_inventory.h"

namespace lockstep::detail {

/// Completes `candidate` on each node, where it is to lie in `target`. It keeps the time at which it was
/// written. Memory: 8 MiB, beside the files. Collective, blocking.
/// @throws on every rank, once all is sent and received: where a file here could not be read or written its
///   IoError, on the others CheckpointError naming the rank; CommError
void fetch_files(const std::filesystem::path& target, const LocalCandidate& candidate,
                 const FolderNodes& nodes, const Communicator& communicator);

/// Sends this rank's `files` in `folder` to the next `copies` nodes, and writes what comes from the nodes
/// before to `folder`; each rank has to do with its namesakes there, so that all links are used at once.
/// Memory: 8 MiB for each rank that sends to this one. Collective, blocking.
/// @throws CommError; what has failed with a file here, such as IoError, when all is sent and received
void replicate(const std::filesystem::path& folder, const FileList& files, int copies,
               const FolderNodes& nodes, const Communicator& communicator);

}  // namespace lockstep::detail
