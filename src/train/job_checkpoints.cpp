#include "train/job_checkpoints.h"

#include <algorithm>
#include <string>

#include <lockstep/base/atomic_file.h>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

fs::path checkpoints_of(const RunState& state) { return state.run_dir / "checkpoints"; }

// Its time says since when what is written here is this job's.
fs::path mark_of_job(const RunState& state) {
  return checkpoints_of(state) / (".job_" + SlurmEnvironment::job_to_requeue().value());
}

// A restarted job that has no mark had not begun to train.
fs::file_time_type begin_of_job(const RunState& state) {
  const auto mark = mark_of_job(state);
  const bool is_restarted = SlurmEnvironment::restart_count() > 0;
  std::error_code missing;
  const auto begin = fs::last_write_time(mark, missing);
  if (is_restarted && !missing) return begin;
  write_file_atomically(mark, "");
  return fs::file_time_type::max();
}

std::vector<CheckpointCandidate> hpc_checkpoints(const RunState& state) {
  auto found = candidates_in({state.run_dir});
  std::erase_if(found, [](const auto& candidate) { return hpc_number(candidate.folder) < 0; });
  std::ranges::sort(found, {}, [](const auto& candidate) { return hpc_number(candidate.folder); });
  return found;
}

}  // namespace

const SlurmEnvironment* requeuing_environment(const RunState& state) {
  const auto* slurm = dynamic_cast<const SlurmEnvironment*>(state.environment.get());
  return slurm != nullptr && slurm->auto_requeue() ? slurm : nullptr;
}

std::vector<CheckpointCandidate> left_by_job(const RunState& state) {
  const auto begin = begin_of_job(state);
  auto left = candidates_in({state.run_dir});
  std::erase_if(left, [&](const auto& each) { return hpc_number(each.folder) < 0 && each.written < begin; });
  return left;
}

fs::path last_hpc_checkpoint(const RunState& state) {
  const auto found = hpc_checkpoints(state);
  return found.empty() ? fs::path() : found.back().folder;
}

fs::path next_hpc_checkpoint(const RunState& state) {
  const auto last = last_hpc_checkpoint(state);
  const auto number = last.empty() ? 0 : hpc_number(last);
  return checkpoints_of(state) / ("hpc_ckpt_" + std::to_string(number + 1) + ".ckpt");
}

void remove_hpc_checkpoints(const RunState& state) {
  for (const auto& candidate : hpc_checkpoints(state)) state.checkpoint_io->remove(candidate.folder);
}

}  // namespace lockstep::detail
