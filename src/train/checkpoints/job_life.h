// Which life of its job a process is in, as all ranks see it: launchers and SLURM start ranks again in the
// place of those that have failed.
#pragma once

#include <filesystem>
#include <optional>

#include "train/options/run_setup.h"

namespace lockstep::detail {

struct JobLife {
  bool is_started_anew = false;  ///< in the place of ranks that have failed, or of others on lost nodes
  /// What was written before is of another job; empty: nobody knows.
  std::optional<std::filesystem::file_time_type> began = {};
};

/// The same on all ranks, of which one may have a launcher that has just come. To be called once in each
/// life, before it writes a checkpoint: in a job of SLURM or torchrun rank 0 notes when its first life
/// begins. Collective, blocking. @throws IoError or, on the others, CheckpointError where that cannot be
/// noted
JobLife agreed_life(const RunSetup& setup);

}  // namespace lockstep::detail
