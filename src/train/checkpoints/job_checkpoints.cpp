#include "train/checkpoints/job_checkpoints.h"

#include <algorithm>
#include <string>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

fs::path checkpoints_of(const RunState& state) { return state.run_dir / "checkpoints"; }

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

std::vector<CheckpointCandidate> left_by_job(const RunState& state, fs::file_time_type began) {
  const bool is_requeuing = requeuing_environment(state) != nullptr;
  auto left = candidates_in({state.run_dir});
  std::erase_if(left, [&](const auto& each) {
    const bool is_hpc = is_requeuing && hpc_number(each.folder) >= 0;
    return !is_hpc && each.written < began;
  });
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
