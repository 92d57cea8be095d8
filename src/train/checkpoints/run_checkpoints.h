// The checkpoints that lie in the folders of runs: of this run, of its job and of earlier runs of its
// program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <lockstep/cluster/slurm_environment.h>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// A checkpoint that has a manifest; whether it is whole, only reading it can tell.
struct CheckpointCandidate {
  std::filesystem::path folder;
  std::filesystem::file_time_type written;
};

/// This run's folder and, if it is one of several versions, theirs.
std::vector<std::filesystem::path> folders_of_program(const std::filesystem::path& run_dir);

/// What there is in the checkpoints/ of run folders, newest first.
std::vector<CheckpointCandidate> candidates_in(const std::vector<std::filesystem::path>& run_folders);

/// N of hpc_ckpt_N.ckpt, which is what is written before a cluster ends a job; -1 for other names.
std::int64_t hpc_number(const std::filesystem::path& checkpoint);

/// The environment of a job that is to be started again before its time is over; null elsewhere.
const SlurmEnvironment* requeuing_environment(const RunSetup& setup);

/// Newest first: the checkpoints in this run directory since the job `began` and, where SLURM may start it
/// again, each hpc_ckpt_N.ckpt there. To be called by rank 0.
std::vector<CheckpointCandidate> checkpoints_of_job(const RunSetup& setup,
                                                    std::filesystem::file_time_type began);

/// hpc_ckpt_N.ckpt in this run directory, with an N above all that are there.
std::filesystem::path next_hpc_checkpoint(const RunSetup& setup);

/// The one with the largest N that is there; empty: none.
std::filesystem::path last_hpc_checkpoint(const RunSetup& setup);

/// When a fit is complete nothing is to go on from these.
void remove_hpc_checkpoints(const RunSetup& setup);

}  // namespace lockstep::detail
