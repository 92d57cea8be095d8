// The checkpoints of a fit and their state: saving a fit, finding the checkpoint to resume, resuming it, and
// saving a fit that fails.
#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/train/hooks.h>
#include <lockstep/train/train_context.h>

#include "checkpoint/local_checkpoints.h"
#include "train/callbacks/hook_list.h"
#include "train/checkpoints/failure_barrier.h"
#include "train/data/data_place.h"
#include "train/data/fit_progress.h"
#include "train/data/run_data.h"
#include "train/logging/class_name.h"
#include "train/logging/run_log.h"
#include "train/options/run_setup.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

/// The entry of checkpoints that tells the seconds that a run's training loops have taken, of all its legs.
inline constexpr const char* kRunSeconds = "run_seconds";

/// The state from which a fit goes on.
struct ResumePoint {
  StateTree loops;
  StateTree own;  ///< of this rank
  int world_size = 1;
};

struct CheckpointSession {
  bool are_off = false;  ///< what runs is a trial of a search: it saves nothing
  /// What checkpoints contain in place of the loops' own state: in a resumed run what the checkpoint held,
  /// until the loops have taken it over; in a run that ends the state at its end, from which a longer run
  /// goes on.
  std::optional<ResumePoint> resume_point;
  /// Called where fit leaves an epoch before its end, after all that precedes that point is done. Collective.
  std::function<void()> on_interruption;
  /// Called where the hooks of that epoch's end have been called, too. Collective.
  std::function<void()> after_cut_epoch;
  std::unique_ptr<CheckpointWriter> writer;         ///< where checkpoints are written in the background
  std::function<void()> on_saved;                   ///< what is left to do when it has written one
  SaveRequest request_of_writer;                    ///< what it is writing for
  std::filesystem::path best_of_last_fit;           ///< what "best" means to a fit, which forgets it
  std::filesystem::path resumed_from;               ///< the checkpoint that ckpt_path has named
  std::vector<std::filesystem::path> promised;      ///< asked for in the hook that is called, not written yet
  bool has_saved_last = false;                      ///< last.ckpt, in this fit
  std::exception_ptr save_failure;                  ///< of what is written at the end of this fit
  std::unique_ptr<FailureBarrier> failure_barrier;  ///< null: nothing to be agreed on after failures
  const std::exception* failure = nullptr;          ///< while on_exception is called
};

/// The parts of a fit that a checkpoint contains.
struct FitParts {
  RunSetup& setup;
  RunData& data;
  FitProgress& progress;
  StopState& stop;
  RunLog& log;
  HookList& hooks;
  CheckpointSession& checkpoints;
  TrainContext& context;  ///< for callbacks that add to a checkpoint
};

/// The counters of the fit, and the windows that callbacks have asked for.
StateTree loops_state(const FitParts& fit);

/// The contents of a checkpoint of weights only. Collective where a rank has only a part of the model.
StateTree weights_of(const FitParts& fit);

enum class WriteMode {
  kAsOptionsSay,  ///< in the background with async_checkpoint
  kInForeground
};

/// Writes a checkpoint of the fit as it is now, from which another process can go on. With async_checkpoint
/// it returns as soon as the state is copied. Collective.
/// @throws IoError as save_checkpoint()
void save_fit(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request = {},
              WriteMode mode = WriteMode::kAsOptionsSay);

/// Does the same as soon as all hooks of the current call have run. A checkpoint that cannot be written is
/// reported on stderr. Does nothing in the sanity check. Collective.
/// @throws ConfigError where there is no such place: inside a batch, outside of hooks
void save_after_hook(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request);

/// Hands the state to `capture` as soon as all hooks of the current call have run; see
/// TrainContext::capture_checkpoint().
void capture_after_hook(const FitParts& fit, CheckpointCapture capture);

/// Writes a checkpoint of a fit that is over. Returns when it is written. Collective.
/// @throws ConfigError before; IoError
void save_after_fit(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request);

/// Keeps the current state as what later checkpoints contain, where a fit leaves an epoch before its end, or
/// ends.
void keep_resume_point(const FitParts& fit);

/// Whether a ModelCheckpoint has saved or removed something since keep_resume_point(). Not Collective.
bool has_saved_since_resume_point(const FitParts& fit);

/// Reports, once, that a checkpoint could not be written in the background. Does not block. Not Collective.
void notice_failed_save(const FitParts& fit);

/// Waits for the checkpoint that is being written in the background, and leaves the group that writes it.
/// @throws IoError where it was not written
void await_save(const FitParts& fit);

/// Loads what training begins with: weights, optimizers, schedules, callbacks, counters. Each rank takes the
/// own state of the rank of the same number; docs/checkpointing.md describes other world sizes. The rest
/// becomes CheckpointSession::resume_point. Collective.
/// @throws IoError, CheckpointError
void load_fit(const FitParts& fit, const Checkpoint& checkpoint);

/// Loads CheckpointSession::resume_point, just before the first batch: gradients of an open window, logged
/// metrics, random generators. Not Collective.
void load_resume_point(const FitParts& fit);

/// Loads what evaluation needs: weights, and what module, data module and callbacks have kept beside them.
/// Returns whether the data module has something of it, and its loaders are to be asked for again. Not
/// Collective. @throws IoError, CheckpointError
bool load_for_evaluation(const FitParts& fit, const Checkpoint& checkpoint);

/// The local checkpoints of the LocalCheckpoint among the callbacks; null where there is none.
LocalCheckpoints* local_checkpoints(const RunSetup& setup);

/// Called where training begins: removes local checkpoints that it does not resume. Not Collective.
void forget_local_checkpoints(const RunSetup& setup);

/// Called where fit has failed: waits for local checkpoints that are being written, leaves their group and
/// keeps all of them. Blocking.
void release_local_checkpoints(const RunSetup& setup);

/// Called where fit is over: waits for local checkpoints that are being written, and removes all where every
/// rank has saved everything. Collective, blocking.
void end_local_checkpoints(const RunSetup& setup, const CheckpointSession& checkpoints);

}  // namespace lockstep::detail

namespace lockstep {
class ModelCheckpoint;
}

namespace lockstep::detail {

/// The first ModelCheckpoint among `callbacks`; null where there is none.
std::shared_ptr<const ModelCheckpoint> first_model_checkpoint(
    std::span<const std::shared_ptr<Callback>> callbacks);

/// Refuses a ckpt_path of "best" where no fit has saved a best one, and forgets it, so that the Trainer can
/// go on. Before the ranks join: all of them find the same. @throws ConfigError
void require_best(RunSetup& setup, const CheckpointSession& checkpoints);

/// Opens the checkpoint that ckpt_path or resume name, once: later runs of the same Trainer use what this run
/// has made. The first fit of a job that was restarted resumes the newest checkpoint of the job instead. Rank
/// 0 chooses; all ranks verify the checkpoint together. Collective.
/// @throws IoError, CheckpointError as Checkpoint's collective constructor
std::optional<Checkpoint> take_wanted_checkpoint(RunSetup& setup, CheckpointSession& checkpoints,
                                                 bool is_first_fit = false);

/// Implements TrainContext::save_after_failure().
SavedAfterFailure save_after_failure(const FitParts& fit, std::filesystem::path folder,
                                     const SaveRequest& request, std::chrono::milliseconds deadline);

// In manual optimisation only the module knows whether a window is open.
inline bool has_gradients_to_keep(const FitParts& fit) {
  return is_inside_window(fit.progress) || !fit.setup.module->automatic_optimization();
}

// The second object of a kind is KEY#1, or KEY.1 where the key becomes a file name.
inline std::string numbered(const std::string& key, std::size_t number, char mark = '.') {
  return number == 0 ? key : key + mark + std::to_string(number);
}

// The class of a schedule, such as "StepLR".
inline std::string schedule_name(const LRScheduler& schedule) {
  return std::visit([](const auto& own) { return class_name(own); }, schedule.scheduler);
}

// The keys of several callbacks of one class get numbers.
template <class Act>
void for_each_callback(const FitParts& fit, Act act) {
  std::map<std::string, std::size_t> seen;
  for (const auto& callback : fit.setup.callbacks) {
    const auto key = callback->state_key();
    const auto number = seen[key]++;
    act(numbered(key, number, '#'), *callback);
  }
}

}  // namespace lockstep::detail
