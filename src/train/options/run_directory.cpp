#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
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

namespace {

constexpr std::array<const char*, 6> kRecordFiles{"config.yaml",  "run.json",    "summary.json",
                                                  "failure.json", "metrics.csv", "metrics.jsonl"};

fs::path aside(const fs::path& file, int number) {
  const auto name = file.stem().string() + "." + std::to_string(number) + file.extension().string();
  return file.parent_path() / name;
}

}  // namespace

bool holds_record(const fs::path& folder) {
  return std::ranges::any_of(kRecordFiles, [&](const char* name) { return fs::exists(folder / name); });
}

void put_record_aside(const fs::path& folder) {
  if (!holds_record(folder)) return;
  int number = 1;
  const auto is_taken = [&](const char* name) { return fs::exists(aside(folder / name, number)); };
  while (std::ranges::any_of(kRecordFiles, is_taken)) ++number;
  for (const char* name : kRecordFiles)
    if (fs::exists(folder / name)) fs::rename(folder / name, aside(folder / name, number));
}

bool give_back_run_directory(const fs::path& folder) {
  if (new_folders().erase(folder) == 0) return false;
  fs::remove(folder / "ranks.json");
  for (const auto& part : {folder / "logs", folder / "checkpoints", folder}) {
    std::error_code is_in_use;
    fs::remove(part, is_in_use);
  }
  return true;
}

namespace {

constexpr std::array<const char*, 2> kProcessFiles{"ranks.json", "failure.json"};

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A new version in which no run has begun.
bool is_unused(const fs::path& folder) {
  return std::ranges::all_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    const auto name = entry.path().filename().string();
    const bool is_empty_part = name == "checkpoints" && fs::is_empty(entry.path());
    return is_empty_part || name == "logs" || std::ranges::count(kProcessFiles, name) > 0;
  });
}

// A run that begins replaces all of them, and puts the earlier ones aside.
std::map<std::string, std::uint64_t> record_of(const fs::path& folder) {
  std::map<std::string, std::uint64_t> files;
  for (const std::string name : kRecordFiles) {
    struct stat status = {};
    const bool tells_of_processes = std::ranges::count(kProcessFiles, name) > 0;
    if (!tells_of_processes && ::stat((folder / name).c_str(), &status) == 0) files[name] = status.st_ino;
  }
  return files;
}

}  // namespace

FolderBeforeRun::FolderBeforeRun(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  record_ = record_of(folder_);
  for (const char* name : kProcessFiles)
    if (fs::exists(folder_ / name)) process_files_[name] = bytes_of(folder_ / name);
}

void FolderBeforeRun::restore() const {
  if (folder_.empty() || record_of(folder_) != record_) return;
  if (record_.empty()) {
    if (new_folders().count(folder_) == 0 || !is_unused(folder_)) return;
    fs::remove(folder_ / "failure.json");
    fs::remove_all(folder_ / "logs");
    give_back_run_directory(folder_);
    return;
  }
  for (const char* name : kProcessFiles) {
    const auto earlier = process_files_.find(name);
    if (earlier == process_files_.end())
      fs::remove(folder_ / name);
    else if (bytes_of(folder_ / name) != earlier->second)
      write_file_atomically(folder_ / name, earlier->second);
  }
}

}  // namespace lockstep::detail
