// The Tuner's searches, within a run that is prepared and has not read its first batch.
#pragma once

#include <optional>

#include <lockstep/train/lr_find_result.h>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// Finds the largest batch size that fits, by runs of the current stage, and sets it. Returns none, with a
/// warning, in a fast_dev_run. Everything but the loaders is restored. Collective.
/// @throws ConfigError without a data module or a way to set the size, and when nothing fits
std::optional<std::int64_t> find_batch_size(TrainerState& state, const ScaleBatchSizeOptions& options);

void refuse_closures(const RunSetup& setup);

/// Refuses a search of fit, called `name`, without training batches. @throws ConfigError
void require_training(const RunSetup& setup, const RunData& data, const char* name);

/// Checks the options of a search, called `name`. Refuses optimizers that evaluate the loss themselves, since
/// their state grows with their steps and ranks with different gradients would diverge, and data without a
/// batch. @throws ConfigError
template <class Options>
void check_search(const RunSetup& setup, const RunData& data, const char* name, Options options) {
  OptionTree tree;
  tree.add(name, options);
  tree.validate();
  refuse_closures(setup);
  require_training(setup, data, name);
}

/// Sweeps the learning rates; with update_attr the optimizer then uses the suggested one. Returns none, with
/// a warning, in a fast_dev_run. Everything else is restored. Collective.
std::optional<LrFindResult> find_learning_rate(TrainerState& state, const LrFindOptions& options);

}  // namespace lockstep::detail
