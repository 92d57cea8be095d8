// One pass over loaders in evaluation mode: validation inside fit, validate, test, predict, sanity check.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// How many batches of a loader a pass takes. Ranks may have data of their own, of other lengths.
struct LoaderLimit {
  std::int64_t batches = 0;       ///< on this rank; of a stream, that many at most
  std::int64_t fewest = 0;        ///< of any rank
  std::int64_t most = 0;          ///< of any rank
  bool is_known = true;           ///< no rank has a stream
  bool has_none_anywhere = true;  ///< no rank has a batch, whatever the limit
};

/// How much of each loader a pass takes.
struct EvaluationLimits {
  std::vector<LoaderLimit> loaders;
  bool is_empty = true;  ///< no rank has any: the pass and its hooks are left out
};

/// The batches of each loader that limit_val_batches and its kin allow in `stage`, and at most `at_most`.
/// Collective. @throws ConfigError as BatchLimit::apply, on all ranks alike
EvaluationLimits evaluation_limits(const RunSetup& setup, const LoaderList& loaders, Stage stage,
                                   std::int64_t at_most = kUnknownLength);

/// Runs `loaders` one after the other as `stage`, from where `progress` is, which it keeps up to date. Calls
/// `between_batches` equally often on all ranks: not after batches that only some ranks have, nor between
/// those of streams, whose lengths differ. Collective.
void run_evaluation_loop(TrainerState& state, const LoaderList& loaders, Stage stage,
                         const EvaluationLimits& limits, EvaluationProgress& progress,
                         const std::function<void()>& between_batches = {});

/// Warns on rank 0 of loaders that have no batch on any rank. Not Collective.
void warn_of_empty(const RunSetup& setup, const EvaluationLimits& limits, Stage stage);

}  // namespace lockstep::detail
