// The checkpoints of a run, and of earlier runs of its program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

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

}  // namespace lockstep::detail
