// The state of a Trainer's checkpoints: the point to resume from, the checkpoint that is being written, and
// failures.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/train/train_context.h>

#include "train/callbacks/hook_list.h"
#include "train/checkpoints/failure_barrier.h"
#include "train/data/fit_progress.h"
#include "train/data/run_data.h"
#include "train/logging/run_log.h"
#include "train/options/run_setup.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

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

}  // namespace lockstep::detail
