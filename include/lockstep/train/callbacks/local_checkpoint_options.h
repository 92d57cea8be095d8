// The options of LocalCheckpoint.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/base/options.h>

namespace lockstep {

/// Names are those of NVIDIA's resiliency extension where it has them.
struct LocalCheckpointOptions {
  std::int64_t every_n_train_steps = 0;  ///< optimizer steps between local checkpoints; 0: none
  /// A folder in memory, of this node; it is made for this user alone. Empty: lockstep-UID in /dev/shm.
  std::filesystem::path folder = {};
  /// The number of nodes that store each part, including the one that wrote it; at most all nodes.
  int replication_factor = 2;
};

LOCKSTEP_API void describe(OptionVisitor& visitor, LocalCheckpointOptions& options);

}  // namespace lockstep
