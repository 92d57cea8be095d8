// A run of fit as a checkpoint, and back: which one it goes on from, what is saved of one that fails.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include <lockstep/checkpoint/checkpoint.h>

#include "checkpoint/local_checkpoints.h"
#include "train/checkpoints/checkpoint_session.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// What a checkpoint of weights only holds: Collective where a rank has only a part of the model.
StateTree weights_of(const FitParts& fit);

enum class WriteMode {
  kAsOptionsSay,  ///< in the background with async_checkpoint
  kInForeground
};

/// Writes where fit is now, with all that another process needs to go on from here; with async_checkpoint it
/// returns when that is copied. Collective.
/// @throws IoError as save_checkpoint()
void save_fit(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request = {},
              WriteMode mode = WriteMode::kAsOptionsSay);

/// The same when all hooks of this moment have been called; what cannot be written is said on stderr. Does
/// nothing in the sanity check. Collective.
/// @throws ConfigError where there is no such place: inside a batch, outside of hooks
void save_after_hook(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request);

/// Hands the same to `capture` when all hooks of this moment have been called, as
/// TrainContext::capture_checkpoint() says.
void capture_after_hook(const FitParts& fit, CheckpointCapture capture);

/// The same when fit is over. Returns when it is written. Collective.
/// @throws ConfigError before; IoError
void save_after_fit(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request);

/// From now on checkpoints say that the run is where it is now: it leaves an epoch before its end, or ends.
void keep_resume_point(const FitParts& fit);

/// Says so, once, if a checkpoint that was written in the background was not. Does not block, nothing
/// Collective.
void notice_failed_save(const FitParts& fit);

/// Waits for what is being written in the background, and leaves the group that it is written by. @throws
/// IoError when it was not written
void await_save(const FitParts& fit);

/// What is taken before training begins: weights, optimizer, schedule, callbacks, counters. Everything of a
/// rank's own comes from its namesake; where the world has another size, see docs/checkpointing.md. What
/// load_resume_point() takes is kept until then. Collective.
/// @throws IoError, CheckpointError
void load_fit(const FitParts& fit, const Checkpoint& checkpoint);

/// What must be as it was when the first batch is asked for: gradients of the window that was under way, what
/// was logged, random generators. Not Collective.
void load_resume_point(const FitParts& fit);

/// The weights alone, for evaluation. Not Collective.
void load_weights_of(const FitParts& fit, const Checkpoint& checkpoint);

/// Those of the callbacks' LocalCheckpoint; null where there is none.
LocalCheckpoints* local_checkpoints(const RunSetup& setup);

/// Training begins: those are removed that it does not go on from. Not Collective.
void forget_local_checkpoints(const RunSetup& setup);

/// Fit has failed: waits for what is under way, and leaves its group. All is kept. Blocking.
void release_local_checkpoints(const RunSetup& setup);

/// Fit is over: waits for what is under way, and removes all where every rank has saved everything.
/// Collective, blocking.
void end_local_checkpoints(const RunSetup& setup, const CheckpointSession& checkpoints);

}  // namespace lockstep::detail

namespace lockstep {
class ModelCheckpoint;
}

namespace lockstep::detail {

/// The first one among the Trainer's callbacks; null where there is none.
const ModelCheckpoint* first_model_checkpoint(const RunSetup& setup);

/// Opens the checkpoint that ckpt_path or resume ask for, once: a later run of the same Trainer is about what
/// this one made. The first fit of a job that SLURM or a launcher has started anew goes before that: it goes
/// on from the newest that the job has left. Rank 0 chooses; all ranks share the check of it, and agree.
/// Collective.
/// @throws IoError, CheckpointError as Checkpoint's collective constructor
std::optional<Checkpoint> take_wanted_checkpoint(RunSetup& setup, CheckpointSession& checkpoints,
                                                 bool is_first_fit = false);

/// TrainContext::save_after_failure(), which says more.
SavedAfterFailure save_after_failure(const FitParts& fit, std::filesystem::path folder,
                                     const SaveRequest& request, std::chrono::milliseconds deadline);

/// NAME-weights.ckpt for NAME.ckpt: what is written where nothing can go on.
std::filesystem::path weights_beside(const std::filesystem::path& folder);

}  // namespace lockstep::detail
