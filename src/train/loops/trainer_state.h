// All of the state of one Trainer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "train/checkpoints/fit_checkpoint.h"

namespace lockstep::detail {

/// Whether a hook may now ask to skip the rest of the epoch, and whether it has asked.
enum class SkipRequest { kRefused, kPossible, kMade };

/// What a loop tells the hooks that it calls, and what they ask of it.
struct LoopStatus {
  std::int64_t num_evaluation_batches = 0;  ///< of this rank, in the loader that is evaluated
  bool validation_is_due = false;           ///< behind the batch that is running
  SkipRequest skip_request = SkipRequest::kRefused;
  bool has_warned_of_no_loss = false;
};

/// A search of the Tuner.
struct SearchRun {
  std::function<void()> body = {};                   ///< runs in the place of training or evaluation
  std::map<std::string, HyperParameter> found = {};  ///< by all searches, for summary.json
};

struct Predictions {
  bool are_kept = false;
  std::vector<std::vector<at::Tensor>> by_loader;  ///< of this rank, by loader and batch
};

/// Used as a whole only by the top loops, by the contexts that hooks get and by the functions that begin and
/// end a run. Everything else is given the parts that it needs.
struct TrainerState {
  RunSetup setup;
  RunData data;
  HookList hooks;
  FitProgress progress;
  StopState stop;
  RunLog log;
  CheckpointSession checkpoints;
  SearchRun search;
  LoopStatus status;
  Predictions predictions;

  TrainContext context{*this};
  FitParts fit{setup, data, progress, stop, log, hooks, checkpoints, context};

  TrainerState() = default;
  TrainerState(const TrainerState&) = delete;
  TrainerState& operator=(const TrainerState&) = delete;
};

}  // namespace lockstep::detail
