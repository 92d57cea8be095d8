// Opening a checkpoint on all ranks.
#pragma once

#include <filesystem>
#include <memory>

#include <lockstep/comm/communicator.h>
#include <lockstep/formats/checkpoint_info.h>

#include "formats/checkpoint_files.h"

namespace lockstep::detail {

/// Opens `folder` on every rank; each checks its share of the bytes. Collective, blocking.
/// @throws on every rank, as Checkpoint's constructor says
std::shared_ptr<const CheckpointFiles> open_together(const std::filesystem::path& folder, Verify verify,
                                                     const Communicator& communicator);

/// The same where ranks have the checkpoint in several places: `share` is of the bytes in this rank's.
std::shared_ptr<const CheckpointFiles> open_together(const std::filesystem::path& folder, Verify verify,
                                                     const Communicator& communicator,
                                                     const OpenShare& share);

}  // namespace lockstep::detail
