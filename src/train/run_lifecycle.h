// What a Trainer does with its options, and what every run of it does before and after its loop.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "train/logging/run_log.h"
#include "train/loops/trainer_state.h"
#include "train/options/deepspeed_options.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// What concerns a run and not a rank, in words.
struct RunNotes {
  std::vector<std::string> infos = {};
  std::vector<std::string> warnings = {};
};

/// Checks `options`, takes what is among the plugins, and spells out what fast_dev_run, overfit_batches,
/// barebones and missing limits mean.
/// @throws ConfigError naming the option, its value and what is accepted; naming plugins that are null, two
/// of a kind, or of what an option names, too
/// Adds to `notes` what rank 0 is to say of it, once it is known who that is.
TrainerOptions effective(TrainerOptions options, RunNotes& notes);

/// Takes out what barebones runs without: callbacks of the library that save, log or draw. Returns their
/// classes.
std::vector<std::string> leave_out_reports(std::vector<std::shared_ptr<Callback>>& callbacks);

/// Whether callbacks of the program draw the progress bar and print the model's summary.
struct OwnReports {
  bool progress_bar = false;
  bool model_summary = false;
};

/// @throws ConfigError where there are two of a kind, or one that the options switch off
OwnReports own_reports(const std::vector<std::shared_ptr<Callback>>& callbacks,
                       const TrainerOptions& options);

/// Sets LibTorch's process-wide switches for `deterministic`, `benchmark` and `matmul_precision`. A switch
/// whose option is not set stays as it is.
void apply_determinism(const TrainerOptions& options, RunNotes& notes);

/// Finds the rank of this process. Where no launcher has started the ranks that `setup` asks for, the process
/// becomes the supervisor of copies of itself and exits with their status.
/// @throws ConfigError where options and environment disagree, or the strategy does not allow such a start
void find_ranks(RunSetup& setup);

/// Forms the group of ranks, once. Collective.
void join_ranks(RunSetup& setup, RunLog& log);

/// Opens the run directory, once: rank 0 claims it for all ranks and makes the loggers; each rank opens its
/// log file. Collective.
void open_run_directory(RunSetup& setup, RunLog& log);

/// Resets what the run before has left, and takes `module`.
/// @throws ConfigError without a module, and within a run of the same Trainer
void begin_run(RunSetup& setup, RunLog& log, Stage stage, std::shared_ptr<AnyModule> module);

/// @throws ConfigError within a run of this Trainer, naming `call` and giving `hint`
void refuse_under_way(const RunSetup& setup, const std::string& call, const std::string& hint);

/// Collects the callbacks of the Trainer and of the module, in the order in which they are called.
void collect_hooks(RunSetup& setup, HookList& hooks);

/// Prepares the module: data, setup hooks, configure_model, initial weights, precision. Collective.
void prepare_module(RunSetup& setup, HookList& hooks, TrainContext& context);

/// Drops the deferred initial values of `module`, all of which are about to be loaded.
void forget_first_values(const AnyModule& module);

/// Fills RunSetup::optimizers and RunSetup::trained. Collective.
/// @throws ConfigError for optimizers that automatic or manual optimisation, or the options, do not allow
void set_up_optimizers(RunSetup& setup, const RunData& data, const FitProgress& progress);

/// Batch size, accumulation, ranks and steps of a fit whose training data is open.
TrainedBatches trained_batches(const RunSetup& setup, const RunData& data, const FitProgress& progress);

/// Once the loader has batches of another size than when optimizers were set up: makes the schedule of
/// DeepSpeed's file anew, whose "auto" are numbers of steps. Not Collective.
/// @throws ConfigError where the file gives another batch size
void heed_new_batch_size(RunSetup& setup, const RunData& data, const FitProgress& progress);

/// Runs a short validation whose results are dropped. Collective.
void sanity_check(TrainerState& state);

/// Ends a run that has succeeded: hooks, loggers, profiler and summary.json. Collective.
void end_run(const FitParts& fit, const SearchRun& search);

/// Ends a search that has run in place of training or evaluation. Only what it has found is kept. Collective.
void end_search(const FitParts& fit, const SearchRun& search);

/// Ends a run that has failed: calls on_exception, keeps what was logged, and leaves the group, so that the
/// other ranks notice at once. Never throws. Not Collective.
void end_failed_run(const FitParts& fit, const SearchRun& search, const std::exception& error);

}  // namespace lockstep::detail
