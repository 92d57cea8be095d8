// The state of one Trainer, shared by its loops; contexts are views of it.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <lockstep/checkpoint/checkpoint_io.h>
#include <lockstep/checkpoint/checkpoint_writer.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/precision/precision.h>
#include <lockstep/profilers/profiler.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/data_module.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

#include "strategy/trained_modules.h"
#include "train/failure_meeting.h"
#include "train/hook_list.h"
#include "train/metric_log.h"
#include "train/progress.h"

namespace lockstep::detail {

/// What summary.json reports beside the counters.
struct RunFigures {
  double seconds = 0;                      ///< of the training loop
  std::int64_t steps = 0;                  ///< optimizer steps in it
  std::int64_t samples = 0;                ///< training samples in it, all ranks
  double start_to_first_collective_s = 0;  ///< 0 when there was none
  std::uint64_t bytes_sent = 0;            ///< by this rank, in the training loop
};

/// Where a run goes on, and what goes with that place.
struct FitMoment {
  StateTree loops;
  StateTree own;  ///< of this rank
  int world_size = 1;
};

/// Whether a hook may ask to skip the rest of an epoch, and has.
enum class SkipRequest { kRefused, kPossible, kMade };

struct RunState {
  TrainerOptions options;
  std::optional<DeepSpeedConfig> deepspeed = {};  ///< of strategy deepspeed
  /// What takes the place of options.accumulate_grad_batches when the next epoch begins.
  std::optional<AccumulationSchedule> next_accumulation;
  std::filesystem::path run_dir;
  bool has_run_dir_of_program = false;  ///< options.run.run_dir is what ls::run() or a launcher gave
  std::shared_ptr<ClusterEnvironment> environment;
  WorldShape shape;
  std::shared_ptr<Strategy> strategy;
  std::shared_ptr<Precision> precision;
  bool environment_ready = false;

  std::shared_ptr<AnyModule> module;
  std::shared_ptr<AnyDataModule> data_module;  ///< null where the loaders were given
  std::shared_ptr<AnyLoader> train_loader;
  LoaderList val_loaders;  ///< empty: fit does not validate
  std::vector<RunOptimizer> optimizers;
  Optimizer* stepping = nullptr;  ///< the optimizer whose on_before_optimizer_step is running
  TrainedModules trained;         ///< the module, or the parts of it that optimizers have named

  HookList hooks;
  std::vector<std::shared_ptr<Callback>> callbacks;
  MetricBoard board;    // of the entry point that is running
  Metrics all_metrics;  // of all that have run
  MetricLog train_log{board};
  MetricLog evaluation_log{board, /*measures=*/true};
  MetricLog* active_log = &train_log;
  std::vector<std::shared_ptr<Logger>> loggers;  ///< on rank 0
  std::shared_ptr<Profiler> profiler;            ///< null: nothing is measured

  Stage stage = Stage::kFit;
  Progress progress;
  RunFigures figures;
  std::int64_t num_evaluation_batches = 0;  ///< of this rank, in the evaluation that runs
  bool validation_is_due = false;           ///< behind the batch that is running
  bool epoch_became_shorter = false;        ///< than what was done of it, since the checkpoint was taken
  SkipRequest skip_request = SkipRequest::kRefused;
  bool should_stop = false;               ///< this rank's wish
  std::set<const Callback*> stop_wishes;  ///< of all ranks, until taken back; checkpoints do not hold them
  bool keeps_stop = false;                ///< checkpoints hold that wish
  bool stops_this_run = false;            ///< a wish of all ranks that checkpoints do not hold
  bool stop_agreed = false;               ///< what several ranks have agreed on
  /// What checkpoints say while it is not what the loops' own state says: in a run that goes on from a
  /// checkpoint, until it does; in one that ends, from the place where a later one would go on.
  std::optional<FitMoment> moment;
  /// Called where fit leaves an epoch before its end, with all that came before done. Collective.
  std::function<void()> on_interruption;
  std::shared_ptr<CheckpointIO> checkpoint_io;
  std::unique_ptr<CheckpointWriter> checkpoint_writer;  ///< where checkpoints are written in the background
  std::function<void()> on_saved;                       ///< what is left to do when it has written one
  SaveRequest request_of_writer;                        ///< what it is writing for
  std::filesystem::path best_of_last_fit;               ///< what "best" means to a fit, which forgets it
  std::filesystem::path resumed_from;                   ///< the checkpoint that ckpt_path has named
  std::vector<std::filesystem::path> promised;  ///< asked for in the hook that is called, not written yet
  bool has_saved_last = false;                  ///< last.ckpt, in this fit
  std::exception_ptr save_failure;              ///< of what is written at the end of this fit
  std::vector<Metrics> results;                 ///< of the last validate or test, by loader
  bool has_warned_of_no_loss = false;
  std::function<void()> search = {};  ///< the Tuner's: runs in the place of training or evaluation
  bool is_trial = false;              ///< what runs is a part of a search: it saves nothing
  std::map<std::string, HyperParameter> tuned = {};  ///< what searches have found, for summary.json
  std::unique_ptr<FailureMeeting> failure_meeting;   ///< null: nothing to be agreed on after failures
  const std::exception* failure = nullptr;           ///< while on_exception is called
  bool keeps_predictions = false;
  std::vector<std::vector<at::Tensor>> predictions;  ///< of this rank, by loader and batch

  bool wishes_to_stop() const { return should_stop || !stop_wishes.empty(); }
  const Communicator& communicator() const { return strategy->communicator(); }
  bool is_global_zero() const { return environment->global_rank() == 0; }
  /// Micro-batches per optimizer step in the epoch that runs, where windows open in it.
  std::int64_t window_length() const { return options.accumulate_grad_batches.at(progress.epoch); }
  /// `knows_end`: whether the loader tells how many batches it has.
  WindowRule windows(bool knows_end) const {
    return {options.accumulate_grad_batches, options.partial_window, knows_end};
  }
  /// This rank's part of a data set; padded so that all ranks run equally many batches, or not.
  ShardSpec shard(bool pad) const;
  /// What the precision makes of the tensors of batches.
  TensorChange input_conversion() const;
  /// One more step of an optimizer, whether its update was taken or not.
  void count_optimizer_step();
  /// The mean of all ranks' values, the same bits on each. Collective.
  double mean_over_ranks(double value) const;
  /// Hands a row to the loggers, which only rank 0 has.
  void write_metrics(const MetricRow& row, std::int64_t step);
};

}  // namespace lockstep::detail
