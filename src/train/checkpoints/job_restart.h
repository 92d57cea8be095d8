// Jobs that are started again: whether this one was, and how SLURM is asked to do so.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/options/run_setup.h"

namespace lockstep::detail {

struct JobRestart {
  bool is_restarted = false;  ///< in the place of ranks that have failed, or of others on lost nodes
  /// What was written before is of another job; empty: nobody knows.
  std::optional<std::filesystem::file_time_type> began = {};
};

/// The same on all ranks, of which one may have a launcher that has just come. To be called once in each
/// life, before it writes a checkpoint: in a job of SLURM or torchrun rank 0 notes when its first life
/// begins. Collective, blocking. @throws IoError or, on the others, CheckpointError where that cannot be
/// noted
JobRestart agree_on_restart(const RunSetup& setup);

/// Asks SLURM to start this process's job again, by `scontrol requeue`. SLURM then ends what runs of it, and
/// soon. Returns nothing where it will, else why it will not, for people. Blocks for 30 s at most.
std::string requeue_job();

/// The same for a job that has to make room for another one: SLURM starts it again by itself only if it is
/// still there when its grace is over. False where it need not make room, and where SLURM refuses, which is
/// said on stderr.
bool requeue_preempted_job();

}  // namespace lockstep::detail
