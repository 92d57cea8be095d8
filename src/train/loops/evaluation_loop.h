// One pass over loaders in evaluation mode: validation inside fit, validate, test, predict, sanity check.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// How much of each loader a pass takes.
struct EvaluationLimits {
  std::vector<std::int64_t> batches;  ///< on this rank
  bool is_empty = true;               ///< no rank has any: the pass and its hooks are left out
};

/// The batches of each loader that limit_val_batches and its kin allow in `stage`, and at most `at_most`.
/// Collective where a loader has streams.
/// @throws ConfigError as BatchLimit::apply, on all ranks alike
EvaluationLimits evaluation_limits(const RunSetup& setup, const LoaderList& loaders, Stage stage,
                                   std::int64_t at_most = kUnknownLength);

/// Runs `loaders` one after the other as `stage`, from where `progress` is, which it keeps up to date. Calls
/// `between_batches` equally often on all ranks: not after batches that only some ranks have, nor between
/// those of streams, whose lengths differ. Collective.
void run_evaluation_loop(TrainerState& state, const LoaderList& loaders, Stage stage,
                         const EvaluationLimits& limits, EvaluationProgress& progress,
                         const std::function<void()>& between_batches = {});

/// Warns on rank 0 of loaders that have no batch on any rank. Not Collective.
void warn_of_empty(const RunSetup& setup, const LoaderList& loaders, Stage stage);

}  // namespace lockstep::detail
