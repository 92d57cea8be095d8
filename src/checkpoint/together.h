// What ranks do together with a checkpoint: steps that succeed on all of them, or on none.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/comm/communicator.h>
#include <lockstep/formats/checkpoint_info.h>

#include "formats/checkpoint_files.h"

namespace lockstep::detail {

// A group for communication beside training.

/// The ranks of `communicator` in a separate group, in which another thread may communicate. Collective,
/// blocking.
Communicator own_group(const Communicator& communicator);

/// Runs this rank's `step` of writing the checkpoint `folder`, and returns the result of rank 0. Collective,
/// blocking.
/// @throws IoError, the same on all ranks, naming the first rank whose step threw, and what
std::string together(const Communicator& communicator, const std::filesystem::path& folder,
                     const std::function<std::string()>& step);

/// Runs this rank's `step`, and returns the results of all ranks, by rank. Collective, blocking.
/// @throws on every rank when one did: what its own step threw, else CheckpointError with `what`, the first
///         rank whose step threw, and why
std::vector<std::string> all_or_none(const Communicator& communicator, const std::string& what,
                                     const std::function<std::string()>& step);

/// The same for a step of reading the checkpoint `folder`.
std::vector<std::string> read_together(const Communicator& communicator, const std::filesystem::path& folder,
                                       const std::function<std::string()>& step);

/// The checkpoint that `folder` means on rank 0, as tagged_folder() says: all ranks get that one, also while
/// another job writes `latest` anew. Collective, blocking.
/// @throws as read_together(), of tagged_folder() on rank 0
std::filesystem::path agreed_folder(const Communicator& communicator, const std::filesystem::path& folder,
                                    const std::string& tag = {});

// Opening a checkpoint on all ranks.

/// Opens `folder` on every rank; each checks its share of the bytes. Collective, blocking.
/// @throws on every rank, as Checkpoint's constructor says
std::shared_ptr<const CheckpointFiles> open_together(const std::filesystem::path& folder, Verify verify,
                                                     const Communicator& communicator);

/// The same where ranks have the checkpoint in several places: `share` is of the bytes in this rank's.
std::shared_ptr<const CheckpointFiles> open_together(const std::filesystem::path& folder, Verify verify,
                                                     const Communicator& communicator,
                                                     const OpenShare& share);

}  // namespace lockstep::detail
