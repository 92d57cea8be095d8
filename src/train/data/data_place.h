// The position of a run in its data, which does not depend on the number of ranks, and the length of a fit.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/checkpoint/checkpoint.h>

#include "train/data/fit_progress.h"
#include "train/data/run_data.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// The rule of this run's accumulation windows. `knows_end`: whether the loader knows its number of batches.
inline WindowRule window_rule(const RunSetup& setup, bool knows_end) {
  return {setup.options.accumulate_grad_batches, setup.options.partial_window, knows_end};
}

/// Micro-batches per optimizer step, for windows that open in the current epoch.
inline std::int64_t window_length(const RunSetup& setup, const FitProgress& progress) {
  return setup.options.accumulate_grad_batches.at(progress.epoch);
}

/// Whether the micro-batch that was completed last left a window open.
bool is_inside_window(const FitProgress& progress);

/// The number of micro-batches of an epoch on each rank, with limits applied.
std::int64_t num_training_batches(const RunSetup& setup, const RunData& data);

/// Called where the training data ends within an epoch. Streams may end there unless they had no batch at
/// all.
/// @throws DataError
void check_end_of_data(const RunSetup& setup, const FitProgress& progress, bool is_stream);

/// What determines the order and the size of global batches, for a checkpoint.
StateTree data_place_of(const RunSetup& setup, const RunData& data, const FitProgress& progress);

/// Resumes at the position in the data that `place` describes: at the same batch where there are equally many
/// ranks, else at the batch that begins with the same sample. There, and where too few batches are left in
/// the epoch, an open window is begun again.
/// @throws CheckpointError naming `checkpoint` when the data set has another size; when no batch begins there
void adopt_data_place(RunSetup& setup, const RunData& data, FitProgress& progress, const StateTree& place,
                      const std::filesystem::path& checkpoint);

/// The own state of the rank of the same number; where there are more ranks now, several ranks share one
/// state.
StateTree own_of(const RunSetup& setup, const Checkpoint& checkpoint);

/// The optimizer steps that a fit will come to, from max_epochs, max_steps, the length of the training data
/// and accumulate_grad_batches of each epoch. None where nothing limits the fit, or the length of the data is
/// unknown. Not Collective.
/// @throws ConfigError outside of fit
std::optional<std::int64_t> estimated_steps(const RunSetup& setup, const RunData& data,
                                            const FitProgress& progress);

}  // namespace lockstep::detail
