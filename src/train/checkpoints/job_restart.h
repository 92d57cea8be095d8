// Restarted jobs: whether the current job was restarted, and how SLURM is asked to restart it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/options/run_setup.h"

namespace lockstep::detail {

struct JobRestart {
  bool is_restarted = false;  ///< in the place of ranks that have failed, or of others on lost nodes
  /// Checkpoints that are older belong to another job; empty where it is unknown.
  std::optional<std::filesystem::file_time_type> began = {};
};

/// Whether the job was restarted, with the same answer on all ranks, some of which may have been started by a
/// newer launcher. Must be called once after each start, before a checkpoint is written: in a job of SLURM or
/// torchrun rank 0 records when the job begins. Collective, blocking.
/// @throws IoError or, on the other ranks, CheckpointError where the begin of the job cannot be recorded
JobRestart agree_on_restart(const RunSetup& setup);

/// Asks SLURM to start this process's job again (`scontrol requeue`). SLURM then soon ends the processes of
/// the job. Returns an empty text where SLURM agrees, else its reason as a sentence. Blocks for at most 30 s.
std::string requeue_job();

/// The same for a preempted job: SLURM starts it again by itself only if it still runs when its grace time is
/// over. Returns false where the job is not preempted, and where SLURM refuses, which is logged.
bool requeue_preempted_job();

}  // namespace lockstep::detail
