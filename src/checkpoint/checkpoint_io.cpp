#include <lockstep/checkpoint/checkpoint_io.h>

#include "checkpoint/staging_directory.h"

namespace lockstep {

CheckpointIO::~CheckpointIO() = default;

void CheckpointIO::save(const std::filesystem::path& folder, const CheckpointState& state,
                        const CheckpointInfo& info, const Communicator& communicator) {
  save_checkpoint(folder, state, info, communicator);
}

Checkpoint CheckpointIO::load(const std::filesystem::path& folder, Verify verify,
                              const Communicator& communicator) {
  return {folder, verify, communicator};
}

void CheckpointIO::remove(const std::filesystem::path& folder) { detail::remove_checkpoint(folder); }

}  // namespace lockstep
