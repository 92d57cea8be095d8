#include "train/options/program_folder.h"

#include <map>
#include <mutex>
#include <string>

#include <lockstep/train/run_directory.h>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOfTrainer = "trainer_";

bool is_version(const fs::path& folder, const TrainerOptions& options) {
  const auto versions = fs::absolute(options.default_root_dir / "runs" / options.run.name);
  return folder.parent_path() == versions && folder.filename().string().starts_with("version_");
}

}  // namespace

int count_trainer_of(const fs::path& folder) {
  static std::mutex mutex;
  static std::map<fs::path, int> trainers;
  const std::lock_guard lock(mutex);
  return ++trainers[fs::absolute(folder).lexically_normal()];
}

fs::path claim_folder_of_trainer(int number, const fs::path& first, const TrainerOptions& options) {
  const auto& name = options.run.name;
  if (is_version(first, options)) return claim_run_directory({}, name, options.default_root_dir);
  return claim_run_directory(first / std::string(kOfTrainer).append(std::to_string(number)), name);
}

fs::path folder_of_first_trainer(const fs::path& run_dir) {
  return run_dir.filename().string().starts_with(kOfTrainer) ? run_dir.parent_path() : fs::path();
}

}  // namespace lockstep::detail
