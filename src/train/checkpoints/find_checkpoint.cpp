// Finds the checkpoint from which a run resumes.
#include "train/checkpoints/fit_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/train/callbacks/model_checkpoint.h>

#include "checkpoint/together.h"
#include "train/checkpoints/interruption.h"
#include "train/checkpoints/run_checkpoints.h"
#include "train/options/run_directory.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr char kOnDisk = '/';  // what begins a word of rank 0's
constexpr char kOfLocal = '#';

// The checkpoints that are written at the end of a fit, complete or failed.
bool is_last(const fs::path& name) {
  return name.filename() == "last.ckpt" || name.filename() == "on_exception.ckpt";
}

// The last checkpoint of this run, else that of the newest earlier run.
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

[[noreturn]] void refuse_path(const std::string& ckpt_path, std::string expected, std::string hint) {
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
    refuse_path("hpc", "a checkpoint hpc_ckpt_N.ckpt in this run directory or those of earlier runs",
                "--resume auto begins anew where there is none");
  return last->folder;
}

void refuse_remote(const std::string& path) {
  if (path.find("://") == std::string::npos) return;
  refuse_path(path, "a folder that all ranks can read", "copy the checkpoint here first");
}

fs::path best_of(const RunSetup& setup, const CheckpointSession& checkpoints) {
  const auto& callback = setup.model_checkpoint;
  if (setup.options.fast_dev_run) refuse_path("best", "a path", "fast_dev_run saves no checkpoints");
  if (callback == nullptr)
    refuse_path("best", "a path, or a ModelCheckpoint among the callbacks", "enable_checkpointing adds one");
  const auto& best = setup.stage == Stage::kFit ? checkpoints.best_of_last_fit : callback->best_model_path();
  if (best.empty()) refuse_path("best", "a path, or a fit before", "ModelCheckpoint has saved nothing yet");
  return best;
}

fs::path path_of(const std::string& ckpt_path, const RunSetup& setup, const CheckpointSession& checkpoints) {
  const auto& run_dir = setup.run_dir;
  refuse_remote(ckpt_path);
  if (ckpt_path == "last") return newest_last(run_dir);
  if (ckpt_path == "hpc") return last_hpc(run_dir);
  if (ckpt_path == "best") return best_of(setup, checkpoints);
  return ckpt_path;
}

// The checkpoints that rank 0 has all ranks try one after the other, until one can be used.
struct ResumeChoice {
  std::vector<CheckpointCandidate> on_disk;  // on rank 0; newest first
  std::vector<LocalCandidate> local;         // the same on all ranks; newest first
};

// All candidates on rank 0, newest first: the folder of one on disk, or the number of a local one.
std::vector<std::string> in_order(const ResumeChoice& choice) {
  std::vector<std::string> order;
  std::size_t local = 0;
  const auto add_local = [&] { order.push_back(kOfLocal + std::to_string(local++)); };
  for (const auto& [folder, written] : choice.on_disk) {
    while (local < choice.local.size() && choice.local[local].written > written) add_local();
    order.push_back(kOnDisk + folder.string());
  }
  while (local < choice.local.size()) add_local();
  return order;
}

Checkpoint opened(const std::string& word, const ResumeChoice& choice, const RunSetup& setup) {
  const auto verify = setup.options.run.verify;
  const auto text = word.substr(1);
  auto checkpoint = word.front() == kOfLocal
                        ? local_checkpoints(setup)->open(choice.local.at(std::stoul(text)), verify)
                        : setup.checkpoint_io->load(text, verify, setup.communicator());
  (void)checkpoint.entry("loops");  // which one of weights only has not
  return checkpoint;
}

std::string name_of(const std::string& word, const ResumeChoice& choice) {
  const auto text = word.substr(1);
  return word.front() == kOfLocal ? "local checkpoint " + choice.local.at(std::stoul(text)).place : text;
}

// Opens the newest checkpoint that is complete; logs a warning for each that is damaged.
std::optional<Checkpoint> newest_complete(const ResumeChoice& choice, const RunSetup& setup) {
  const auto order = setup.is_global_zero() ? in_order(choice) : std::vector<std::string>();
  for (std::size_t number = 0;; ++number) {
    const auto word = setup.communicator().broadcast_bytes(number < order.size() ? order[number] : "");
    if (word.empty()) return std::nullopt;
    try {
      return opened(word, choice, setup);
    } catch (const CommError&) {
      throw;
    } catch (const Error& error) {
      if (setup.is_global_zero())
        log_warning("not resuming from " + name_of(word, choice) + ": " + error.what());
    }
  }
}

std::vector<LocalCandidate> local_of(const RunSetup& setup, const std::vector<fs::path>& run_dirs) {
  const auto* checkpoints = local_checkpoints(setup);
  return checkpoints == nullptr ? std::vector<LocalCandidate>() : checkpoints->find(run_dirs);
}

// Later runs of this Trainer do not resume again.
std::optional<Checkpoint> checkpoint_of_job(RunSetup& setup, const ResumeChoice& choice) {
  auto found = newest_complete(choice, setup);
  if (!found) return std::nullopt;
  if (setup.is_global_zero()) log_info("this job goes on from " + found->folder().string());
  setup.options.run.ckpt_path.clear();
  setup.options.run.resume = Resume::kNever;
  return found;
}

// Where the begin of the job is unknown, checkpoints in memory count as its own, and those on disk do not.
ResumeChoice resume_choice_of_job(const RunSetup& setup, const JobRestart& life) {
  ResumeChoice choice;
  if (life.is_restarted) choice.local = local_of(setup, {setup.run_dir});
  if (life.began) std::erase_if(choice.local, [&](const auto& each) { return each.written < *life.began; });
  if (setup.is_global_zero())
    choice.on_disk = checkpoints_of_job(setup, life.began.value_or(fs::file_time_type::max()));
  return choice;
}

// The checkpoint that an earlier start of this job has left, which takes precedence over the options of the
// command. With resume = auto all checkpoints are candidates in any case.
std::optional<Checkpoint> checkpoint_of_restarted_job(RunSetup& setup) {
  const auto& run = setup.options.run;
  const bool is_requeuing = requeuing_environment(setup) != nullptr;
  auto* local = local_checkpoints(setup);
  if (!is_requeuing && local == nullptr) return std::nullopt;
  const auto life = agree_on_restart(setup);
  const bool is_auto = run.ckpt_path.empty() && run.resume == Resume::kAuto;
  // Done before training, so that a restart after an early failure does not find another job's checkpoints.
  if (local != nullptr && !life.is_restarted && !is_auto) local->forget_others();
  if (!is_requeuing && (is_auto || !life.is_restarted)) return std::nullopt;
  const auto choice = resume_choice_of_job(setup, life);
  auto found = checkpoint_of_job(setup, choice);
  if (!found && !choice.local.empty() && setup.is_global_zero())
    log_warning("none of the checkpoints of this job can be used: it starts as its options say");
  return found;
}

// The newest checkpoint of this program.
std::optional<Checkpoint> newest_of_program(const RunSetup& setup) {
  ResumeChoice choice;
  std::vector<fs::path> folders;  // of rank 0
  if (setup.is_global_zero()) {
    folders = folders_of_program(setup.run_dir);
    choice.on_disk = candidates_in(folders);
  }
  choice.local = local_of(setup, folders);
  return newest_complete(choice, setup);
}

}  // namespace

std::shared_ptr<const ModelCheckpoint> first_model_checkpoint(
    std::span<const std::shared_ptr<Callback>> callbacks) {
  for (const auto& callback : callbacks) {
    if (auto found = std::dynamic_pointer_cast<const ModelCheckpoint>(callback)) return found;
  }
  return nullptr;
}

void require_best(RunSetup& setup, const CheckpointSession& checkpoints) {
  auto& wanted = setup.options.run.ckpt_path;
  if (wanted != "best") return;
  try {
    (void)best_of(setup, checkpoints);
  } catch (const ConfigError&) {
    wanted.clear();
    throw;
  }
}

std::optional<Checkpoint> take_wanted_checkpoint(RunSetup& setup, CheckpointSession& checkpoints,
                                                 bool is_first_fit) {
  auto& run = setup.options.run;
  checkpoints.resumed_from.clear();
  if (is_first_fit)
    if (auto found = checkpoint_of_restarted_job(setup)) return found;
  const auto ckpt_path = std::exchange(run.ckpt_path, {});
  const auto resume = std::exchange(run.resume, Resume::kNever);
  if (ckpt_path.empty())
    return resume == Resume::kAuto ? newest_of_program(setup) : std::optional<Checkpoint>();
  const auto wanted =
      setup.is_global_zero() ? path_of(ckpt_path, setup, checkpoints).string() : std::string();
  const auto folder = setup.communicator().broadcast_bytes(wanted);
  if (folder.empty()) return std::nullopt;
  checkpoints.resumed_from = agreed_folder(setup.communicator(), folder);
  return setup.checkpoint_io->load(checkpoints.resumed_from, run.verify, setup.communicator());
}

}  // namespace lockstep::detail
