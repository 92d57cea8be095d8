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

/// By the limit option of `stage`, and not more than `at_most` of each loader. Collective where a loader has
/// streams.
/// @throws ConfigError as BatchLimit::apply, on all ranks alike
EvaluationLimits evaluation_limits(const RunSetup& setup, const LoaderList& loaders, Stage stage,
                                   std::int64_t at_most = kUnknownLength);

/// Runs `loaders` one after the other as `stage`. Collective.
void run_evaluation_loop(TrainerState& state, const LoaderList& loaders, Stage stage,
                         const EvaluationLimits& limits);
/// The same from where `progress` is, which it keeps. `between_batches` is called equally often on all ranks:
/// not behind batches that not all of them have, nor between those of streams, which differ in their lengths.
void run_evaluation_loop(TrainerState& state, const LoaderList& loaders, Stage stage,
                         const EvaluationLimits& limits, EvaluationProgress& progress,
                         const std::function<void()>& between_batches = {});

/// Says on rank 0 which of `loaders` have no batch on any rank. Not Collective.
void warn_of_empty(const RunSetup& setup, const LoaderList& loaders, Stage stage);

}  // namespace lockstep::detail
