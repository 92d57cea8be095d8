// How many optimizer steps a fit will come to.
#pragma once

#include <cstdint>
#include <optional>

#include "train/data/fit_progress.h"
#include "train/data/run_data.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// From max_epochs, max_steps, the length of the training data and accumulate_grad_batches, for each epoch as
/// it will be then, behind the steps that are done. None where nothing limits it, or only the end of the data
/// tells. Not Collective.
/// @throws ConfigError outside of fit
std::optional<std::int64_t> estimated_steps(const RunSetup& setup, const RunData& data,
                                            const FitProgress& progress);

}  // namespace lockstep::detail
