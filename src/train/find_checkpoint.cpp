#include "train/find_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/train/callbacks/model_checkpoint.h>

#include "checkpoint/together.h"
#include "train/checkpoint_candidates.h"
#include "train/job_checkpoints.h"
#include "train/program_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

// What the end of a fit is saved as, a good or a bad one.
bool is_last(const fs::path& name) {
  return name.filename() == "last.ckpt" || name.filename() == "on_exception.ckpt";
}

// This run's, else that of the newest one.
fs::path newest_last(const fs::path& run_dir) {
  auto folders = folders_of_program(run_dir);
  if (const auto first = folder_of_first_trainer(run_dir); !first.empty()) folders.push_back(first);
  const auto candidates = candidates_in(folders);
  const auto own = std::ranges::find_if(candidates, [&](const CheckpointCandidate& candidate) {
    return is_last(candidate.folder) && candidate.folder.parent_path() == run_dir / "checkpoints";
  });
  if (own != candidates.end()) return own->folder;
  const auto any = std::ranges::find_if(candidates, is_last, &CheckpointCandidate::folder);
  if (any != candidates.end()) return any->folder;
  log_warning("ckpt_path is \"last\", but there is no last checkpoint: starting from the beginning");
  return {};
}

[[noreturn]] void refuse(const std::string& ckpt_path, std::string expected, std::string hint) {
  throw ConfigError("train", {.what = "ckpt_path cannot be used",
                              .expected = std::move(expected),
                              .got = "\"" + ckpt_path + "\"",
                              .hint = std::move(hint)});
}

fs::path last_hpc(const fs::path& run_dir) {
  const auto candidates = candidates_in(folders_of_program(run_dir));
  const auto number = [](const CheckpointCandidate& candidate) { return hpc_number(candidate.folder); };
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
  for (const auto& candidate : candidates_in(folders_of_program(state.run_dir)))
    folders.push_back(candidate.folder);
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

// Nothing else is asked for later.
std::optional<Checkpoint> checkpoint_of_job(RunState& state) {
  auto found = newest_complete(state.is_global_zero() ? left_by_job(state) : std::vector<fs::path>(), state);
  if (!found) return std::nullopt;
  if (state.is_global_zero()) log_info("this job goes on from " + found->folder().string());
  state.options.run.ckpt_path.clear();
  state.options.run.resume = Resume::kNever;
  return found;
}

}  // namespace

const ModelCheckpoint* first_model_checkpoint(const RunState& state) {
  for (const auto& callback : state.options.callbacks) {
    if (const auto* found = dynamic_cast<const ModelCheckpoint*>(callback.get())) return found;
  }
  return nullptr;
}

std::optional<Checkpoint> take_wanted_checkpoint(RunState& state, bool is_first_fit) {
  auto& run = state.options.run;
  state.resumed_from.clear();
  if (is_first_fit && requeuing_environment(state) != nullptr)
    if (auto found = checkpoint_of_job(state)) return found;
  if (run.ckpt_path.empty() && run.resume == Resume::kNever) return std::nullopt;
  std::vector<fs::path> folders;  // of rank 0
  if (state.is_global_zero()) folders = wanted_folders(state);
  const bool is_named = !std::exchange(run.ckpt_path, {}).empty();
  run.resume = Resume::kNever;
  if (!is_named) return newest_complete(folders, state);
  const auto folder = state.communicator().broadcast_bytes(folders.empty() ? "" : folders.front().string());
  if (folder.empty()) return std::nullopt;
  state.resumed_from = agreed_folder(state.communicator(), folder);
  return state.checkpoint_io->load(state.resumed_from, run.verify, state.communicator());
}

}  // namespace lockstep::detail
