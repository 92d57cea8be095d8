// The data of a run: its data module or loaders.
#pragma once

#include <memory>

#include <lockstep/train/data_module.h>

#include "train/data/fit_progress.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

struct RunData {
  std::shared_ptr<AnyDataModule> module;  ///< null where the loaders were given
  std::shared_ptr<AnyLoader> train;
  LoaderList val;  ///< empty: fit does not validate
};

/// Sets up the data module, if there is one, and opens the loaders for fit. Collective.
/// @throws ConfigError when there is nothing to train on; DataError when a rank gets nothing
void open_training_data(const RunSetup& setup, RunData& data, FitProgress& progress,
                        const DataSource& source);

/// Sets up the data module, if there is one, and returns the loaders for another stage. Collective.
LoaderList open_evaluation_data(const RunSetup& setup, RunData& data, const DataSource& source);

/// Asks the data module for new training data where reload_dataloaders_every_n_epochs says so for the epoch
/// that begins; returns whether it did. Collective.
bool reload_training_data(const RunSetup& setup, RunData& data, FitProgress& progress);
/// The same for the validation data, before a validation.
void reload_validation_data(const RunSetup& setup, RunData& data, FitProgress& progress);
/// For a resumed run: asks the data module for the loaders that were in use where `progress` is. Collective.
void restore_reloaded_data(const RunSetup& setup, RunData& data, const FitProgress& progress);

/// These ask the data module, which is set up, for its loaders again, for another batch size. Collective.
void reopen_training_data(const RunSetup& setup, RunData& data, const FitProgress& progress);
LoaderList reopen_evaluation_data(const RunSetup& setup, const RunData& data);

/// Tears down the data module, after the stage. Not Collective.
void close_data(const RunSetup& setup, RunData& data);

}  // namespace lockstep::detail
