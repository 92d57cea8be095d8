// How far a fit has come: its counters, from which another process can resume it.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/state/state_tree.h>

#include "train/data/accumulation_window.h"

namespace lockstep::detail {

/// The part of the current epoch that is done. A checkpoint can be taken in all phases but kInBatch.
enum class FitPhase {
  kEpochStart,  ///< nothing
  kBatches,     ///< on_train_epoch_start, `batches` micro-batches, and all that follows them
  kInBatch,     ///< those, and a part of the next
  kBatchEnd,    ///< those, but for what follows on_train_batch_end of the last
  kValidation,  ///< those; then `validation` says how far it has come
  kEpochEnd,    ///< all but what follows on_train_epoch_end of those that do not monitor
  kEpochLogged  ///< all but what follows on_train_epoch_end
};

/// The hook that a pass of evaluation has called last.
enum class EvaluationPhase { kNone, kStart, kEpochStart, kEpochEnd, kEnd };

/// How far a pass of evaluation has come.
struct EvaluationProgress {
  EvaluationPhase phase = EvaluationPhase::kNone;
  std::int64_t loader = 0;   ///< the one that runs; those before are through
  std::int64_t batches = 0;  ///< of it, completed, this rank's

  bool operator==(const EvaluationProgress&) const = default;
};

/// The counters of a fit.
struct FitProgress {
  std::int64_t epoch = 0;                 ///< completed epochs
  std::int64_t batches = 0;               ///< completed micro-batches of the epoch that runs, this rank's
  std::int64_t global_step = 0;           ///< optimizer steps
  std::int64_t batches_that_stepped = 0;  ///< the loggers' x-axis in fit
  std::int64_t samples = 0;               ///< training samples, all ranks
  std::int64_t evaluation_batches = 0;    ///< the loggers' x-axis of evaluation steps
  FitPhase phase = FitPhase::kEpochStart;
  EvaluationProgress validation = {};  ///< of the validation within fit that runs
  std::int64_t batches_before = 0;     ///< micro-batches of the epochs before, this rank's
  std::int64_t num_training_batches = 0;
  std::int64_t next_train_reload = 0;   ///< the epoch from which on the training data are asked for anew
  std::int64_t next_val_reload = 0;     ///< the same of the validation data
  std::int64_t steps_before_batch = 0;  ///< global_step when the batch that runs began
  OpenWindow window = {};               ///< behind `batches`; while a batch runs, before it
  /// The options of a resumed run have made the epoch shorter than what is done of it. Not kept in
  /// checkpoints.
  bool epoch_became_shorter = false;

  /// Counts a step of an optimizer, whether the update was taken or skipped.
  void count_optimizer_step();

  bool operator==(const FitProgress&) const = default;
};

/// All counters, for a checkpoint. `epoch` and `batches` are also the position in the data.
LOCKSTEP_API StateTree state_of(const FitProgress& progress);

/// @throws CheckpointError as the getters of StateTree, or for an unknown phase; nothing has changed then
LOCKSTEP_API void load_state(FitProgress& progress, const StateTree& state);

}  // namespace lockstep::detail
