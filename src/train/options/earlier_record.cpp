#include "train/options/earlier_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <lockstep/base/atomic_file.h>

#include "train/options/run_directory.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 6> kRecordFiles{"config.yaml",  "run.json",    "summary.json",
                                                  "failure.json", "metrics.csv", "metrics.jsonl"};

constexpr std::array<const char*, 2> kProcessFiles{"ranks.json", "failure.json"};

fs::path aside(const fs::path& file, int number) {
  const auto name = file.stem().string() + "." + std::to_string(number) + file.extension().string();
  return file.parent_path() / name;
}

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

FolderBeforeRun::FolderBeforeRun(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  record_ = record_of(folder_);
  for (const char* name : kProcessFiles)
    if (fs::exists(folder_ / name)) process_files_[name] = bytes_of(folder_ / name);
}

void FolderBeforeRun::restore() const {
  if (folder_.empty() || record_of(folder_) != record_) return;
  if (record_.empty()) {
    if (!is_new_run_directory(folder_) || !is_unused(folder_)) return;
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
