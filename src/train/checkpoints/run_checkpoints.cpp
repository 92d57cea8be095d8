#include "train/checkpoints/run_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "formats/checkpoint_folders.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

bool is_version(const fs::path& folder) { return folder.filename().string().starts_with("version_"); }

// The time at which the checkpoint was written, also where its replacement was interrupted; none without one.
std::optional<fs::file_time_type> time_of(const fs::path& checkpoint) {
  std::error_code failure;
  const auto written = fs::last_write_time(place_of_checkpoint(checkpoint) / kManifestName, failure);
  return failure ? std::nullopt : std::optional(written);
}

// A checkpoint whose replacement was interrupted has no folder of its own name. A name with "{val/loss}" has
// a parent folder.
void find_names(const fs::path& folder, std::set<fs::path>& names) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto moved = checkpoint_of(entry.path(), kOlder);
    const auto& name = moved.empty() ? entry.path() : moved;
    if (name.extension() == ".ckpt") {
      names.insert(name);
    } else if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) {
      find_names(entry.path(), names);
    }
  }
}

std::set<fs::path> names_in(const fs::path& folder) {
  std::set<fs::path> names;
  find_names(folder, names);
  return names;
}

}  // namespace

std::vector<fs::path> folders_of_program(const fs::path& run_dir) {
  std::vector<fs::path> folders{run_dir};
  if (!is_version(run_dir)) return folders;
  for (const auto& entry : fs::directory_iterator(run_dir.parent_path())) {
    if (entry.is_directory() && is_version(entry.path()) && entry.path() != run_dir)
      folders.push_back(entry.path());
  }
  return folders;
}

std::vector<CheckpointCandidate> candidates_in(const std::vector<fs::path>& run_folders) {
  std::vector<CheckpointCandidate> candidates;
  for (const auto& run : run_folders) {
    for (const auto& name : names_in(run / "checkpoints"))
      if (const auto written = time_of(name)) candidates.push_back({name, *written});
  }
  std::ranges::sort(candidates, std::ranges::greater(), &CheckpointCandidate::written);
  return candidates;
}

std::int64_t hpc_number(const fs::path& checkpoint) {
  constexpr std::string_view kPrefix = "hpc_ckpt_";
  const auto stem = checkpoint.stem().string();
  std::int64_t number = -1;
  if (!stem.starts_with(kPrefix)) return number;
  const auto [end, error] = std::from_chars(stem.data() + kPrefix.size(), stem.data() + stem.size(), number);
  return error == std::errc() && end == stem.data() + stem.size() ? number : -1;
}

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

std::vector<CheckpointCandidate> checkpoints_of_job(const RunSetup& setup, fs::file_time_type began) {
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
