// The data of a run: its loaders, wherever they come from.
#pragma once

#include <memory>

#include <lockstep/train/data_module.h>
#include <lockstep/train/trainer.h>

#include "train/data/fit_progress.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

struct RunData {
  std::shared_ptr<AnyDataModule> module;  ///< null where the loaders were given
  std::shared_ptr<AnyLoader> train;
  LoaderList val;  ///< empty: fit does not validate
};

/// Sets up the data module, if there is one, and gives the state its loaders for fit. Collective.
/// @throws ConfigError when there is nothing to train on; DataError when a rank gets nothing
void open_training_data(const RunSetup& setup, RunData& data, FitProgress& progress,
                        const DataSource& source);

/// The same for another stage, whose loaders are returned. Collective.
LoaderList open_evaluation_data(const RunSetup& setup, RunData& data, const DataSource& source);

/// Asks the data module for the training data anew where reload_dataloaders_every_n_epochs says so for the
/// epoch that begins; returns whether it did. Collective.
bool reload_training_data(const RunSetup& setup, RunData& data, FitProgress& progress);
/// The same of the validation data, before a validation.
void reload_validation_data(const RunSetup& setup, RunData& data, FitProgress& progress);
/// A run goes on: asks for those loaders that it used where the state's progress is. Collective.
void restore_reloaded_data(const RunSetup& setup, RunData& data, const FitProgress& progress);

/// Ask the data module, which is set up, for its loaders once more. Collective.
void reopen_training_data(const RunSetup& setup, RunData& data, const FitProgress& progress);
LoaderList reopen_evaluation_data(const RunSetup& setup, const RunData& data);

/// After the stage. Not Collective.
void close_data(const RunSetup& setup, RunData& data);

}  // namespace lockstep::detail
