#include <unistd.h>

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/launcher_environments.h>
#include <lockstep/train/run_directory.h>
#include <lockstep/train/trainer_options.h>

#include "train/options/run_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& folder, const std::string& why) {
  throw ConfigError("train", {.what = "run directory " + folder.string() + " cannot be used",
                              .expected = "a folder that can be written",
                              .got = why,
                              .where = "",
                              .hint = "choose another with --run_dir"});
}

void create(const fs::path& folder) {
  try {
    create_folders(folder);
  } catch (const IoError& error) {
    refuse(folder, error.what());
  }
  if (access(folder.c_str(), W_OK) != 0)
    refuse(folder, std::error_code(errno, std::generic_category()).message());
}

fs::path first_free_version(const fs::path& parent) {
  create(parent);
  for (int version = 0;; ++version) {
    const auto folder = parent / ("version_" + std::to_string(version));
    std::error_code failure;
    if (fs::create_directory(folder, failure)) return folder;
    if (failure) refuse(folder, failure.message());
  }
}

// In a SLURM job the version is named by job and step: version_12, version_12.1. The first task of a step
// claims the folder. SLURM numbers the steps of a job that it starts again as before.
std::optional<std::string> version_of_job() {
  const auto job = SlurmEnvironment::job_id();
  const auto step = SlurmEnvironment::step();
  if (!job || !step || env::get("SLURM_PROCID") != "0") return std::nullopt;
  return "version_" + std::to_string(*job) + (*step == 0 ? "" : "." + std::to_string(*step));
}

// A second claim in one process belongs to another run.
fs::path folder_of_version(const fs::path& parent, const std::string& version) {
  static std::mutex mutex;
  static std::map<fs::path, int> claims;
  const std::lock_guard lock(mutex);
  const auto folder = fs::absolute(parent / version);
  const int earlier = claims[folder]++;
  return earlier == 0 ? folder : fs::path(folder.string() + "-" + std::to_string(earlier));
}

fs::path new_folder(const fs::path& parent) {
  const auto version = version_of_job();
  return version ? folder_of_version(parent, *version) : first_free_version(parent);
}

// Those that this process has claimed by no name.
std::set<fs::path>& new_folders() {
  static std::set<fs::path> folders;
  return folders;
}

}  // namespace

fs::path claim_run_directory(const fs::path& wanted, const std::string& name, const fs::path& root) {
  const auto folder = fs::absolute(wanted.empty() ? new_folder(root / "runs" / name) : wanted);
  if (wanted.empty()) new_folders().insert(folder);
  create(folder);
  create(folder / "logs");
  create(folder / "checkpoints");
  return folder;
}

}  // namespace lockstep

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
  // A rank that has given its folder back has none.
  return ++trainers[folder.empty() ? folder : fs::absolute(folder).lexically_normal()];
}

fs::path claim_folder_of_trainer(int number, const fs::path& first, const TrainerOptions& options) {
  const auto& name = options.run.name;
  if (is_version(first, options)) return claim_run_directory({}, name, options.default_root_dir);
  return claim_run_directory(first / std::string(kOfTrainer).append(std::to_string(number)), name);
}

fs::path folder_of_first_trainer(const fs::path& run_dir) {
  return run_dir.filename().string().starts_with(kOfTrainer) ? run_dir.parent_path() : fs::path();
}

bool is_new_run_directory(const fs::path& folder) { return new_folders().count(folder) > 0; }

bool give_back_run_directory(const fs::path& folder) {
  if (new_folders().erase(folder) == 0) return false;
  fs::remove(folder / "ranks.json");
  for (const auto& part : {folder / "logs", folder / "checkpoints", folder}) {
    std::error_code is_in_use;
    fs::remove(part, is_in_use);
  }
  return true;
}

}  // namespace lockstep::detail
