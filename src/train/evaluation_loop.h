// One pass over a loader in evaluation mode: validation inside fit, validate, test, sanity check.
#pragma once

#include <memory>

#include "train/run_state.h"

namespace lockstep::detail {

/// Runs `loader` once as `stage`, at most `max_batches` batches on this rank. Collective.
void run_evaluation_loop(RunState& state, AnyLoader& loader, Stage stage, std::int64_t max_batches);
/// The same from where `progress` is, which it keeps.
void run_evaluation_loop(RunState& state, AnyLoader& loader, Stage stage, std::int64_t max_batches,
                         EvaluationProgress& progress);

/// Batches of `loader` on this rank under the limit option of `stage`.
std::int64_t evaluation_batches(const RunState& state, const AnyLoader& loader, Stage stage);

}  // namespace lockstep::detail
