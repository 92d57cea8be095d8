// The checkpoints in the folders of this run, of its job and of earlier runs of its program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <lockstep/cluster/launcher_environments.h>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// A checkpoint that has a manifest. Whether it is complete is known only once it is read.
struct CheckpointCandidate {
  std::filesystem::path folder;
  std::filesystem::file_time_type written;
};

/// The folder of this run and, where it is a version, the other versions.
std::vector<std::filesystem::path> folders_of_program(const std::filesystem::path& run_dir);

/// The checkpoints in the checkpoints/ folders of runs, newest first.
std::vector<CheckpointCandidate> candidates_in(const std::vector<std::filesystem::path>& run_folders);

/// The number N of hpc_ckpt_N.ckpt, the checkpoint that is written before a cluster ends a job; -1 for other
/// names.
std::int64_t hpc_number(const std::filesystem::path& checkpoint);

/// The SLURM environment where the job is to be requeued before its time is over; null elsewhere.
const SlurmEnvironment* requeuing_environment(const RunSetup& setup);

/// The checkpoints in this run directory that were written since the job `began` and, where SLURM may requeue
/// it, each hpc_ckpt_N.ckpt there; newest first. Called by rank 0.
std::vector<CheckpointCandidate> checkpoints_of_job(const RunSetup& setup,
                                                    std::filesystem::file_time_type began);

/// The next hpc_ckpt_N.ckpt of this run directory: N is above all that exist.
std::filesystem::path next_hpc_checkpoint(const RunSetup& setup);

/// The hpc_ckpt_N.ckpt with the largest N; empty where there is none.
std::filesystem::path last_hpc_checkpoint(const RunSetup& setup);

/// Removes each hpc_ckpt_N.ckpt, so that nothing resumes a fit that is complete.
void remove_hpc_checkpoints(const RunSetup& setup);

}  // namespace lockstep::detail
