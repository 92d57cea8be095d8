// What the lives of a job leave to each other on disk. SLURM starts a job again that asks for it, that makes
// room for another one, or whose node fails; launchers start ranks again when one fails.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/cluster/slurm_environment.h>

#include "train/checkpoints/checkpoint_candidates.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// The environment of a job that is to be started again before its time is over; null elsewhere.
const SlurmEnvironment* requeuing_environment(const RunSetup& setup);

/// Newest first: the checkpoints in this run directory since the job `began` and, where SLURM may start it
/// again, each hpc_ckpt_N.ckpt there. To be called by rank 0.
std::vector<CheckpointCandidate> left_by_job(const RunSetup& setup, std::filesystem::file_time_type began);

/// hpc_ckpt_N.ckpt in this run directory, with an N above all that are there.
std::filesystem::path next_hpc_checkpoint(const RunSetup& setup);

/// The one with the largest N that is there; empty: none.
std::filesystem::path last_hpc_checkpoint(const RunSetup& setup);

/// When a fit is complete nothing is to go on from these.
void remove_hpc_checkpoints(const RunSetup& setup);

}  // namespace lockstep::detail
