// What the lives of a SLURM job leave to each other: SLURM starts a job again that asks for it, that makes
// room for another one, or whose node fails.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/cluster/slurm_environment.h>

#include "train/checkpoint_candidates.h"
#include "train/run_state.h"

namespace lockstep::detail {

/// The environment of a job that is to be started again before its time is over; null elsewhere.
const SlurmEnvironment* requeuing_environment(const RunState& state);

/// Newest first: each hpc_ckpt_N.ckpt in this run directory and, where SLURM has started the job again, all
/// other checkpoints since the job's first life began to train here. To be called once in each life, by
/// rank 0, before it makes any. @throws IoError
std::vector<CheckpointCandidate> left_by_job(const RunState& state);

/// hpc_ckpt_N.ckpt in this run directory, with an N above all that are there.
std::filesystem::path next_hpc_checkpoint(const RunState& state);

/// The one with the largest N that is there; empty: none.
std::filesystem::path last_hpc_checkpoint(const RunState& state);

/// When a fit is complete nothing is to go on from these.
void remove_hpc_checkpoints(const RunState& state);

}  // namespace lockstep::detail
