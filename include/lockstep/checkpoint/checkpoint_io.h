// CheckpointIO: how a Trainer writes, opens and removes checkpoints. Derive your own to do more with them.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>
#include <lockstep/checkpoint/checkpoint.h>

namespace lockstep {

/// Lightning's CheckpointIO. Each function does what lockstep does by itself; a derived class adds to it,
/// such as copying the folder to a store once it is complete, fetching it from there, or keeping what would
/// be removed.
class LOCKSTEP_API CheckpointIO {
 public:
  virtual ~CheckpointIO();

  /// Writes `folder`. Collective, blocking. @throws as save_checkpoint()
  virtual void save(const std::filesystem::path& folder, const CheckpointState& state,
                    const CheckpointInfo& info, const Communicator& communicator);

  /// Opens `folder`, which save() wrote. Collective, blocking. @throws as Checkpoint
  virtual Checkpoint load(const std::filesystem::path& folder, Verify verify,
                          const Communicator& communicator);

  /// Removes `folder`, of which a newer one has taken the place. Called on rank 0 alone.
  virtual void remove(const std::filesystem::path& folder);
};

}  // namespace lockstep
