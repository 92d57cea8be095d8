// Files of each node on their way to the nodes that keep copies of them.
#pragma once

#include <filesystem>

#include <lockstep/comm/communicator.h>

#include "checkpoint/file_pieces.h"
#include "checkpoint/folder_nodes.h"

namespace lockstep::detail {

/// Sends this rank's `files` in `folder` to the next `copies` nodes, and writes what comes from the nodes
/// before to `folder`; each rank has to do with its namesakes there, so that all links are used at once.
/// Memory: 8 MiB for each rank that sends to this one. Collective, blocking.
/// @throws CommError; what has failed with a file here, such as IoError, when all is sent and received
void replicate(const std::filesystem::path& folder, const FileList& files, int copies,
               const FolderNodes& nodes, const Communicator& communicator);

}  // namespace lockstep::detail
