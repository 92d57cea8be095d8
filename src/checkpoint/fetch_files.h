// Files of a local checkpoint that nodes lack, from those that have them.
#pragma once

#include <filesystem>

#include "checkpoint/local_checkpoints.h"

namespace lockstep::detail {

/// Completes `candidate` on each node, where it is to lie in `target`. It keeps the time at which it was
/// written. Memory: 8 MiB, beside the files. Collective, blocking.
/// @throws on every rank, once all is sent and received: where a file here could not be read or written its
///   IoError, on the others CheckpointError naming the rank; CommError
void fetch_files(const std::filesystem::path& target, const LocalCandidate& candidate,
                 const FolderNodes& nodes, const Communicator& communicator);

}  // namespace lockstep::detail
