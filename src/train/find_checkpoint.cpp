#include "train/find_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  fs::path folder;
  fs::file_time_type written;
};

bool is_version(const fs::path& folder) { return folder.filename().string().starts_with("version_"); }

// This run's folder and, if it is one of several versions, theirs.
std::vector<fs::path> run_folders(const fs::path& run_dir) {
  std::vector<fs::path> folders{run_dir};
  if (!is_version(run_dir)) return folders;
  for (const auto& entry : fs::directory_iterator(run_dir.parent_path())) {
    if (entry.is_directory() && is_version(entry.path()) && entry.path() != run_dir)
      folders.push_back(entry.path());
  }
  return folders;
}

// Newest first.
std::vector<Candidate> candidates_in(const fs::path& run_dir) {
  std::vector<Candidate> candidates;
  for (const auto& run : run_folders(run_dir)) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
      const auto written = fs::last_write_time(entry.path() / "manifest.json", ignored);
      if (entry.path().extension() == ".ckpt" && !ignored) candidates.push_back({entry.path(), written});
    }
  }
  std::ranges::sort(candidates, std::ranges::greater(), &Candidate::written);
  return candidates;
}

// Damaged ones are passed over, and named.
fs::path newest_complete(const fs::path& run_dir, Verify verify) {
  for (const auto& candidate : candidates_in(run_dir)) {
    try {
      (void)Checkpoint(candidate.folder, verify);
      return candidate.folder;
    } catch (const Error& error) {
      log_warning("not resuming from " + candidate.folder.string() + ": " + error.what());
    }
  }
  return {};
}

fs::path newest_last(const fs::path& run_dir) {
  for (const auto& candidate : candidates_in(run_dir)) {
    if (candidate.folder.filename() == "last.ckpt") return candidate.folder;
  }
  log_warning("ckpt_path is \"last\", but there is no last checkpoint: starting from the beginning");
  return {};
}

void refuse_remote(const std::string& path) {
  if (path.find("://") == std::string::npos) return;
  throw ConfigError("train", {.what = "ckpt_path cannot be used",
                              .expected = "a folder that all ranks can read",
                              .got = "\"" + path + "\"",
                              .hint = "copy the checkpoint here first"});
}

fs::path choose(const RunOptions& run, const fs::path& run_dir) {
  if (!run.ckpt_path.empty()) {
    refuse_remote(run.ckpt_path);
    if (run.ckpt_path == "last") return newest_last(run_dir);
    return run.ckpt_path;
  }
  return run.resume == Resume::kAuto ? newest_complete(run_dir, run.verify) : fs::path();
}

}  // namespace

std::optional<Checkpoint> take_wanted_checkpoint(RunState& state) {
  auto& run = state.options.run;
  if (run.ckpt_path.empty() && run.resume == Resume::kNever) return std::nullopt;
  const bool leads = state.is_global_zero();
  const auto chosen = state.communicator().broadcast_bytes(leads ? choose(run, state.run_dir).string() : "");
  run.ckpt_path.clear();
  run.resume = Resume::kNever;
  if (chosen.empty()) return std::nullopt;
  // The other ranks compare what they read.
  return Checkpoint(chosen, leads ? run.verify : Verify::kNeeded);
}

}  // namespace lockstep::detail
