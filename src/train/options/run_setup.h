// What is decided about a run before its loops begin.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/precision/precision.h>
#include <lockstep/profilers/profiler.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

#include "launch/run_directory_lock.h"
#include "strategy/trained_modules.h"

namespace lockstep {
class ModelCheckpoint;
}

namespace lockstep::detail {

/// What run.json tells beside the options, and how far it is.
struct RunFacts {
  int trainer = 1;                          ///< number in its program
  std::vector<std::string> seeds = {};      ///< own_seed() of each rank
  std::filesystem::path resumed_from = {};  ///< the first run's checkpoint; empty: none
  bool is_recorded = false;                 ///< run.json and config.yaml are of this Trainer
  bool has_begun = false;                   ///< a run of this Trainer has passed all checks
  bool is_under_way = false;                ///< one is, so that its hooks cannot begin another
};

/// Schedules beside options.accumulate_grad_batches, which is the one in effect: callbacks may change it.
struct AccumulationChanges {
  AccumulationSchedule given;                     ///< the Trainer's own, which every fit begins with
  AccumulationSchedule first;                     ///< after the hooks setup() of this fit
  std::optional<AccumulationSchedule> next = {};  ///< comes into effect when the next epoch begins
};

/// The options, and what follows from them and from the environment. Functions that prepare a run, resume it
/// or search for its options change a RunSetup; the loops only read it.
struct RunSetup {
  TrainerOptions options;
  std::optional<DeepSpeedConfig> deepspeed = {};  ///< of strategy deepspeed
  AccumulationChanges accumulation = {};
  std::filesystem::path run_dir;
  launch::RunDirectoryLock run_directory_lock;  ///< rank 0 has it
  RunFacts facts;
  bool has_run_dir_of_program = false;  ///< options.run.run_dir is what ls::run() or a launcher gave
  std::shared_ptr<ClusterEnvironment> environment;
  WorldShape shape;
  std::shared_ptr<Strategy> strategy;  ///< null once a run has failed
  bool environment_ready = false;      ///< the group of ranks is formed
  std::shared_ptr<Precision> precision;
  std::shared_ptr<Profiler> profiler;  ///< null: nothing is measured
  std::shared_ptr<CheckpointIO> checkpoint_io;

  Stage stage = Stage::kFit;
  std::shared_ptr<AnyModule> module;
  std::vector<std::shared_ptr<Callback>> callbacks;  ///< in the order in which they are called
  /// The first of the last fit, and before one of the Trainer's; null where there is none.
  std::shared_ptr<const ModelCheckpoint> model_checkpoint;
  /// Called by the loops on all ranks before they exchange anything but gradients; may be empty.
  std::function<void()> before_exchange;
  std::vector<RunOptimizer> optimizers;
  TrainedModules trained;  ///< the module, or the parts of it that optimizers have named

  const Communicator& communicator() const { return strategy->communicator(); }
  bool is_global_zero() const { return environment->global_rank() == 0; }
  /// This rank's part of a data set; padded so that all ranks run equally many batches, or not.
  ShardSpec shard(bool pad) const;
  /// Converts the tensors of batches to the type that the precision wants; empty where it converts none.
  TensorChange input_conversion() const;
  void announce_exchange() const {
    if (before_exchange) before_exchange();
  }
  /// The mean of all ranks' values, the same bits on each. Collective.
  double mean_over_ranks(double value) const;
};

/// The CheckpointIO that the program has given among the plugins; null where there is none.
std::shared_ptr<CheckpointIO> own_checkpoint_io(const TrainerOptions& options);

}  // namespace lockstep::detail
