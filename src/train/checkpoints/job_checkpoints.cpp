#include "train/checkpoints/job_checkpoints.h"

#include <algorithm>
#include <string>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

fs::path checkpoints_of(const RunSetup& setup) { return setup.run_dir / "checkpoints"; }

std::vector<CheckpointCandidate> hpc_checkpoints(const RunSetup& setup) {
  auto found = candidates_in({setup.run_dir});
  std::erase_if(found, [](const auto& candidate) { return hpc_number(candidate.folder) < 0; });
  std::ranges::sort(found, {}, [](const auto& candidate) { return hpc_number(candidate.folder); });
  return found;
}

}  // namespace

const SlurmEnvironment* requeuing_environment(const RunSetup& setup) {
  const auto* slurm = dynamic_cast<const SlurmEnvironment*>(setup.environment.get());
  return slurm != nullptr && slurm->auto_requeue() ? slurm : nullptr;
}

std::vector<CheckpointCandidate> left_by_job(const RunSetup& setup, fs::file_time_type began) {
  const bool is_requeuing = requeuing_environment(setup) != nullptr;
  auto left = candidates_in({setup.run_dir});
  std::erase_if(left, [&](const auto& each) {
    const bool is_hpc = is_requeuing && hpc_number(each.folder) >= 0;
    return !is_hpc && each.written < began;
  });
  return left;
}

fs::path last_hpc_checkpoint(const RunSetup& setup) {
  const auto found = hpc_checkpoints(setup);
  return found.empty() ? fs::path() : found.back().folder;
}

fs::path next_hpc_checkpoint(const RunSetup& setup) {
  const auto last = last_hpc_checkpoint(setup);
  const auto number = last.empty() ? 0 : hpc_number(last);
  return checkpoints_of(setup) / ("hpc_ckpt_" + std::to_string(number + 1) + ".ckpt");
}

void remove_hpc_checkpoints(const RunSetup& setup) {
  for (const auto& candidate : hpc_checkpoints(setup)) setup.checkpoint_io->remove(candidate.folder);
}

}  // namespace lockstep::detail
