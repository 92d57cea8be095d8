// The Tuner's searches, within a run that is prepared and has not asked for its first batch.
#pragma once

#include <optional>

#include <lockstep/train/lr_find_result.h>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// Finds the largest batch that fits, by runs of state.setup.stage, and sets it. Nothing, and a warning, in a
/// fast_dev_run. All but the loaders is as before. Collective.
/// @throws ConfigError without a data module or a way to set the size, and when nothing fits
std::optional<std::int64_t> find_batch_size(TrainerState& state, const ScaleBatchSizeOptions& options);

void refuse_closures(const RunSetup& setup);

/// Where a search of fit, called `name`, would train on nothing. @throws ConfigError
void require_training(const RunSetup& setup, const RunData& data, const char* name);

/// Checks the options of a search, called `name`, and refuses optimizers that evaluate the loss themselves:
/// their state grows with their steps, and ranks whose gradients differ would part in them. What has no batch
/// to train on is refused as well. @throws ConfigError
template <class Options>
void check_search(const RunSetup& setup, const RunData& data, const char* name, Options options) {
  OptionTree tree;
  tree.add(name, options);
  tree.validate();
  refuse_closures(setup);
  require_training(setup, data, name);
}

/// Sweeps the learning rates; with update_attr the optimizer goes on with what is suggested. Nothing, and a
/// warning, in a fast_dev_run. All else is as before. Collective.
std::optional<LrFindResult> find_learning_rate(TrainerState& state, const LrFindOptions& options);

}  // namespace lockstep::detail
