// Everything that a Trainer can be told. Each field is also a flag (--trainer.FIELD), a YAML key and
// an environment variable (LOCKSTEP_TRAINER_FIELD); names and defaults are Lightning's.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/base/option_objects.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/device/devices.h>
#include <lockstep/launch/fault.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/precision/precision_options.h>
#include <lockstep/strategy/strategy_options.h>
#include <lockstep/train/batch_counts.h>
#include <lockstep/train/logger_list.h>
#include <lockstep/train/profiler_choice.h>

namespace lockstep {

class Callback;
class CheckpointIO;
class ClusterEnvironment;

/// A part of a Trainer that a program brings along.
using Plugin = std::variant<std::shared_ptr<ClusterEnvironment>, std::shared_ptr<Precision>,
                            std::shared_ptr<CheckpointIO>>;

/// What becomes of a window of accumulated gradients that is open when an epoch ends.
enum class PartialWindow {
  kAccumulated,  ///< a step, with gradients divided by the micro-batches that it has: a true mean
  kLightning,    ///< a step, with gradients divided by accumulate_grad_batches, as Lightning does
  kCarry         ///< it goes on in the next epoch, as DeepSpeed's; the last one of a run has no step
};

/// How products of float32 matrices may be rounded: torch.set_float32_matmul_precision.
enum class MatmulPrecision {
  kHighest,  ///< as float32
  kHigh,     ///< factors as TF32, with 10 bits of fraction, or as two numbers of bfloat16
  kMedium    ///< factors as bfloat16
};

/// Whether algorithms that may give other bits from run to run are refused.
enum class Deterministic {
  kFalse,
  kTrue,  ///< an error where there is no other algorithm
  kWarn   ///< a warning there
};

LOCKSTEP_API std::span<const OptionName<PartialWindow>> option_names(PartialWindow);
LOCKSTEP_API std::span<const OptionName<Deterministic>> option_names(Deterministic);
LOCKSTEP_API std::span<const OptionName<MatmulPrecision>> option_names(MatmulPrecision);

/// Whether a run goes on where an earlier one of its name was interrupted.
enum class Resume {
  kNever,
  kAuto  ///< from the newest complete checkpoint, if there is one
};

/// The part of a run's settings that ls::run() fills in from the command line; see docs/quickstart.md.
struct RunOptions {
  std::string name = "lockstep";  ///< program name: runs/NAME/version_N
  /// The exact folder of this run; empty: runs/NAME/version_N. Further Trainers of a program of ls::run() get
  /// the next version_N, or run_dir/trainer_2, trainer_3, ...
  std::filesystem::path run_dir = {};
  std::optional<std::uint64_t> seed_everything = {};  ///< of samplers; ls::run() seeds generators with it
  /// Checkpoint to go on from: a folder, or "last", the last.ckpt of this run directory, else of the newest
  /// run of this name, or "hpc", the hpc_ckpt_N.ckpt there with the largest N, or "best", that of the first
  /// ModelCheckpoint. Empty: none.
  std::string ckpt_path = {};
  Resume resume = Resume::kNever;
  Verify verify =
      Verify::kAll;  ///< how much of a checkpoint is compared with its checksums when it is loaded
  std::filesystem::path init_weights = {};  ///< safetensors file to start from; empty: as constructed
  std::filesystem::path save_weights = {};  ///< safetensors file to write at the end of fit; empty: none
  Fault fault = {};                         ///< test aid: break one rank on purpose
  std::string config_yaml = {};             ///< the effective configuration, saved as config.yaml
  std::map<std::string, std::string> flags = {};  ///< what the command line said, by keys: also of values
                                                  ///< that are the defaults
  HyperParameters hyper_parameters = {};          ///< the program's own options, given to the loggers
};

/// The options of LocalCheckpoint. Names are those of NVIDIA's resiliency extension where it has them.
struct LocalCheckpointOptions {
  std::int64_t every_n_train_steps = 0;  ///< optimizer steps between local checkpoints; 0: none
  /// A folder in memory, of this node; it is made for this user alone. Empty: lockstep-UID in /dev/shm.
  std::filesystem::path folder = {};
  /// The number of nodes that store each part, including the one that wrote it; at most all nodes.
  int replication_factor = 2;
};

/// How a Trainer trains.
struct TrainerOptions {
  std::optional<std::int64_t> max_epochs = {};  ///< none: 1000 unless max_steps is set; -1: no limit
  std::optional<std::int64_t> min_epochs =
      {};                       ///< stop() is not honoured before; none: 1 with min_steps, else 0
  std::int64_t max_steps = -1;  ///< optimizer steps; -1: no limit
  std::int64_t min_steps = 0;   ///< stop() is not honoured before
  /// Ends the run as stop() does, when it has taken so long; none: no limit. Time of resumed runs counts.
  std::optional<std::chrono::milliseconds> max_time = {};
  /// A run that tries every stage with so many batches: limit_*_batches and max_steps
  /// are that number, max_epochs is 1; there are no sanity check, loggers and checkpoints.
  FastDevRun fast_dev_run = {};
  StrategyOptions strategy = Auto{};
  PrecisionOptions precision = Fp32{};
  std::string accelerator = "auto";  ///< "auto", "cpu", "gpu" or another of accelerator_names()
  Devices devices = {};              ///< ranks on this node: "auto" (1) or a number
  int num_nodes = 1;
  bool cuda_graphs = false;  ///< record a training step once on the device and replay it; see captured_step.h
  bool expandable_segments = false;  ///< CUDA's allocator grows its segments, which wastes less memory

  BatchLimit limit_train_batches = {};
  BatchLimit limit_val_batches = {};
  BatchLimit limit_test_batches = {};
  BatchLimit limit_predict_batches = {};
  BatchLimit overfit_batches = 0;  ///< train and validate on so many batches, in order, always the same
  /// When a training epoch validates: after this fraction, number of batches, or time.
  ValCheckInterval val_check_interval = {};
  /// Only in every n-th epoch; none: val_check_interval counts batches across epochs.
  std::optional<int> check_val_every_n_epoch = 1;
  int num_sanity_val_steps = 2;  ///< validation batches of each loader run before training; -1: all
  /// In which epochs a data module is asked for its loaders of fit again: every n-th; 0: never.
  int reload_dataloaders_every_n_epochs = 0;

  /// Micro-batches per optimizer step: a number, or numbers by the epoch from which they hold.
  AccumulationSchedule accumulate_grad_batches = 1;
  EnumOption<PartialWindow> partial_window = PartialWindow::kAccumulated;
  std::optional<double> gradient_clip_val = {};
  EnumOption<ClipAlgorithm> gradient_clip_algorithm = ClipAlgorithm::kNorm;
  bool sync_batchnorm = false;  ///< BatchNorm layers train on the statistics of all ranks' batches
  bool detect_anomaly = false;  ///< fail at the first loss or gradient that is not finite

  int log_every_n_steps = 50;
  LoggerList logger = true;            ///< true: metrics.csv; or names, or loggers of the program's own
  bool enable_autolog_hparams = true;  ///< give RunOptions::hyper_parameters to the loggers
  ProfilerChoice profiler = {};        ///< "simple", "advanced", "trace", "pytorch", or the program's own
  /// Write checkpoints/last.ckpt at the end of fit and, unless callbacks have a ModelCheckpoint, one of
  /// the latest epoch.
  bool enable_checkpointing = true;
  bool async_checkpoint = false;  ///< write checkpoints while training goes on
  /// Adds a LocalCheckpoint, which saves to the memory of the nodes, if it has an interval.
  LocalCheckpointOptions local_checkpoint = {};
  bool enable_progress_bar = true;
  bool enable_model_summary = true;  ///< print a table of the model's parts
  /// The bare loop: no logger, checkpoint, progress bar, summary or sanity check, no callbacks that save, log
  /// or draw, and log() does nothing.
  bool barebones = false;

  EnumOption<Deterministic> deterministic = Deterministic::kFalse;
  std::optional<bool> benchmark = {};  ///< let cuDNN try its algorithms; none: as LibTorch has it
  /// How products of float32 matrices are rounded, in the whole process; none: as LibTorch has it.
  std::optional<EnumOption<MatmulPrecision>> matmul_precision = {};
  bool inference_mode = true;  ///< validate, test and predict in inference mode where one process runs
  bool use_distributed_sampler = true;          ///< each rank gets its part of the data; false: all of it
  std::filesystem::path default_root_dir = {};  ///< where runs/ is made; empty: the working directory

  std::vector<std::shared_ptr<Callback>> callbacks = {};  ///< in the order in which they are called
  /// Callbacks that files and flags name (--trainer.callbacks): each Trainer makes new ones of them, behind
  /// `callbacks`. See named_callbacks.h.
  std::vector<NamedObject> named_callbacks = {};
  std::shared_ptr<ClusterEnvironment> cluster_environment = {};  ///< none: detected
  std::vector<Plugin> plugins = {};  ///< at most one of each kind; not together with an option of that kind
  RunOptions run = {};               ///< filled in by ls::run()
};

LOCKSTEP_API void describe(OptionVisitor& visitor, TrainerOptions& options);
LOCKSTEP_API void describe(OptionVisitor& visitor, RunOptions& options);
LOCKSTEP_API void describe(OptionVisitor& visitor, LocalCheckpointOptions& options);

}  // namespace lockstep
