// Where in the data a run is, in terms that do not depend on the number of ranks, and how far it will come.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/checkpoint/checkpoint.h>

#include "train/data/fit_progress.h"
#include "train/data/run_data.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// The rule of this run's accumulation windows. `knows_end`: whether the loader tells how many batches it
/// has.
inline WindowRule window_rule(const RunSetup& setup, bool knows_end) {
  return {setup.options.accumulate_grad_batches, setup.options.partial_window, knows_end};
}

/// Micro-batches per optimizer step in the epoch that runs, where windows open in it.
inline std::int64_t window_length(const RunSetup& setup, const FitProgress& progress) {
  return setup.options.accumulate_grad_batches.at(progress.epoch);
}

/// Whether the micro-batch that was completed last left a window open.
bool is_inside_window(const FitProgress& progress);

/// Micro-batches of an epoch, on each rank.
std::int64_t num_training_batches(const RunSetup& setup, const RunData& data);

/// What is wrong with data that end here, in the midst of an epoch: nothing with a stream that had batches.
/// Without it a run would train on nothing, or leave out what belongs to the end of an epoch.
/// @throws DataError
void check_end_of_data(const RunSetup& setup, const FitProgress& progress, bool is_stream);

/// What the order and the size of global batches follow from.
StateTree data_place_of(const RunSetup& setup, const RunData& data, const FitProgress& progress);

/// Goes on in the data where `place` was taken: at the same batch in a world of the same size. In another
/// one, at the batch that begins with the same sample. There, and where too few batches are left in the
/// epoch, a window that was open is begun anew.
/// @throws CheckpointError when the data set has another size, or no batch begins there
void adopt_data_place(RunSetup& setup, const RunData& data, FitProgress& progress, const StateTree& place);

/// What the rank of the same number had for itself; in a larger world ranks share.
StateTree own_of(const RunSetup& setup, const Checkpoint& checkpoint);

/// From max_epochs, max_steps, the length of the training data and accumulate_grad_batches, for each epoch as
/// it will be then, behind the steps that are done. None where nothing limits it, or only the end of the data
/// tells. Not Collective.
/// @throws ConfigError outside of fit
std::optional<std::int64_t> estimated_steps(const RunSetup& setup, const RunData& data,
                                            const FitProgress& progress);

}  // namespace lockstep::detail
