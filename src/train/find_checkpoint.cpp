#include "train/find_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/train/callbacks/model_checkpoint.h>

#include "formats/checkpoint_manifest.h"
#include "formats/checkpoint_siblings.h"

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

// When the checkpoint of that name was written, wherever it lies; nothing where there is none.
std::optional<fs::file_time_type> time_of(const fs::path& checkpoint) {
  std::error_code failure;
  const auto written = fs::last_write_time(place_of_checkpoint(checkpoint) / kManifestName, failure);
  return failure ? std::nullopt : std::optional(written);
}

// Those whose replacement was interrupted have no folder of their name. That of a "{val/loss}" has a folder
// in it.
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

// Newest first.
std::vector<Candidate> candidates_in(const fs::path& run_dir) {
  std::vector<Candidate> candidates;
  for (const auto& run : run_folders(run_dir)) {
    for (const auto& name : names_in(run / "checkpoints"))
      if (const auto written = time_of(name)) candidates.push_back({name, *written});
  }
  std::ranges::sort(candidates, std::ranges::greater(), &Candidate::written);
  return candidates;
}

// What the end of a fit is saved as, a good or a bad one.
bool is_last(const fs::path& name) {
  return name.filename() == "last.ckpt" || name.filename() == "on_exception.ckpt";
}

// This run's, else that of the newest one.
fs::path newest_last(const fs::path& run_dir) {
  const auto candidates = candidates_in(run_dir);
  const auto own = std::ranges::find_if(candidates, [&](const Candidate& candidate) {
    return is_last(candidate.folder) && candidate.folder.parent_path() == run_dir / "checkpoints";
  });
  if (own != candidates.end()) return own->folder;
  const auto any = std::ranges::find_if(candidates, is_last, &Candidate::folder);
  if (any != candidates.end()) return any->folder;
  log_warning("ckpt_path is \"last\", but there is no last checkpoint: starting from the beginning");
  return {};
}

/// N of hpc_ckpt_N.ckpt, which is what is written before a cluster ends a job; -1 for other names.
std::int64_t hpc_number(const fs::path& folder) {
  constexpr std::string_view kPrefix = "hpc_ckpt_";
  const auto stem = folder.stem().string();
  std::int64_t number = -1;
  if (!stem.starts_with(kPrefix)) return number;
  const auto [end, error] = std::from_chars(stem.data() + kPrefix.size(), stem.data() + stem.size(), number);
  return error == std::errc() && end == stem.data() + stem.size() ? number : -1;
}

[[noreturn]] void refuse(const std::string& ckpt_path, std::string expected, std::string hint) {
  throw ConfigError("train", {.what = "ckpt_path cannot be used",
                              .expected = std::move(expected),
                              .got = "\"" + ckpt_path + "\"",
                              .hint = std::move(hint)});
}

fs::path last_hpc(const fs::path& run_dir) {
  const auto candidates = candidates_in(run_dir);
  const auto number = [](const Candidate& candidate) { return hpc_number(candidate.folder); };
  const auto last = std::ranges::max_element(candidates, {}, number);
  if (last == candidates.end() || number(*last) < 0)
    refuse("hpc", "a checkpoint hpc_ckpt_N.ckpt in this run directory or those of earlier runs",
           "--resume auto begins anew where there is none");
  return last->folder;
}

void refuse_remote(const std::string& path) {
  if (path.find("://") == std::string::npos) return;
  refuse(path, "a folder that all ranks can read", "copy the checkpoint here first");
}

fs::path best_of(const RunState& state) {
  const auto* callback = first_model_checkpoint(state);
  if (state.options.fast_dev_run) refuse("best", "a path", "fast_dev_run saves no checkpoints");
  if (callback == nullptr)
    refuse("best", "a path, or a ModelCheckpoint among the callbacks", "enable_checkpointing adds one");
  if (callback->best_model_path().empty())
    refuse("best", "a path, or a fit before", "ModelCheckpoint has saved nothing yet");
  return callback->best_model_path();
}

fs::path path_of(const std::string& ckpt_path, const RunState& state) {
  const auto& run_dir = state.run_dir;
  refuse_remote(ckpt_path);
  if (ckpt_path == "last") return newest_last(run_dir);
  if (ckpt_path == "hpc") return last_hpc(run_dir);
  if (ckpt_path == "best") return best_of(state);
  return ckpt_path;
}

// What rank 0 asks all ranks to open, one after the other until one can be used.
std::vector<fs::path> wanted_folders(const RunState& state) {
  const auto& ckpt_path = state.options.run.ckpt_path;
  if (!ckpt_path.empty()) {
    const auto path = path_of(ckpt_path, state);
    return path.empty() ? std::vector<fs::path>() : std::vector{path};
  }
  std::vector<fs::path> folders;
  for (const auto& candidate : candidates_in(state.run_dir)) folders.push_back(candidate.folder);
  return folders;
}

// Damaged ones are passed over, and named.
std::optional<Checkpoint> newest_complete(const std::vector<fs::path>& folders, const RunState& state) {
  const auto& communicator = state.communicator();
  for (std::size_t number = 0;; ++number) {
    const auto folder = communicator.broadcast_bytes(number < folders.size() ? folders[number].string() : "");
    if (folder.empty()) return std::nullopt;
    try {
      auto checkpoint = state.checkpoint_io->load(folder, state.options.run.verify, communicator);
      (void)checkpoint.entry("loops");  // which one of weights only has not
      return checkpoint;
    } catch (const CommError&) {
      throw;
    } catch (const Error& error) {
      if (state.is_global_zero()) log_warning("not resuming from " + folder + ": " + error.what());
    }
  }
}

}  // namespace

const ModelCheckpoint* first_model_checkpoint(const RunState& state) {
  for (const auto& callback : state.options.callbacks) {
    if (const auto* found = dynamic_cast<const ModelCheckpoint*>(callback.get())) return found;
  }
  return nullptr;
}

std::optional<Checkpoint> take_wanted_checkpoint(RunState& state) {
  auto& run = state.options.run;
  state.resumed_from.clear();
  if (run.ckpt_path.empty() && run.resume == Resume::kNever) return std::nullopt;
  std::vector<fs::path> folders;  // of rank 0
  if (state.is_global_zero()) folders = wanted_folders(state);
  const bool is_named = !std::exchange(run.ckpt_path, {}).empty();
  run.resume = Resume::kNever;
  if (!is_named) return newest_complete(folders, state);
  const auto folder = state.communicator().broadcast_bytes(folders.empty() ? "" : folders.front().string());
  if (folder.empty()) return std::nullopt;
  state.resumed_from = folder;
  return state.checkpoint_io->load(folder, run.verify, state.communicator());
}

}  // namespace lockstep::detail
