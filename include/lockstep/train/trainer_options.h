// Everything that a Trainer can be told. Each field is also a flag (--trainer.FIELD), a YAML key and
// an environment variable (LOCKSTEP_TRAINER_FIELD); names and defaults are Lightning's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/options.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/launch/fault.h>
#include <lockstep/optim/gradient_clip.h>
#include <lockstep/precision/precision_options.h>
#include <lockstep/strategy/strategy_options.h>
#include <lockstep/train/batch_limit.h>

namespace lockstep {

class Callback;
class ClusterEnvironment;

/// What the gradients of a window that the end of the epoch cut short are divided by.
enum class PartialWindow {
  kAccumulated,  ///< the micro-batches that it has: a true mean
  kLightning     ///< accumulate_grad_batches, as Lightning does
};

/// Whether a run goes on where an earlier one of its name was interrupted.
enum class Resume {
  kNever,
  kAuto  ///< from the newest complete checkpoint, if there is one
};

/// The part of a run's settings that ls::run() fills in from the command line; see docs/quickstart.md.
struct RunOptions {
  std::string name = "lockstep";       ///< program name: runs/NAME/version_N
  std::filesystem::path run_dir = {};  ///< the exact folder of this run; empty: runs/NAME/version_N
  std::optional<std::uint64_t> seed_everything = {};  ///< seeds the generators and the samplers of all ranks
  /// Checkpoint to go on from: a folder, or "last", the last.ckpt of this run directory, else of the newest
  /// run of this name, or "hpc", the hpc_ckpt_N.ckpt there with the largest N. Empty: none.
  std::string ckpt_path = {};
  Resume resume = Resume::kNever;
  Verify verify =
      Verify::kAll;  ///< how much of a checkpoint is compared with its checksums when it is loaded
  std::filesystem::path init_weights = {};  ///< safetensors file to start from; empty: as constructed
  std::filesystem::path save_weights = {};  ///< safetensors file to write at the end of fit; empty: none
  Fault fault = {};                         ///< test aid: break one rank on purpose
  std::string config_yaml = {};             ///< the effective configuration, saved as config.yaml
};

struct TrainerOptions {
  std::optional<std::int64_t> max_epochs = {};  ///< none: 1000 unless max_steps is set; -1: no limit
  std::int64_t min_epochs = 0;                  ///< stop() is not honoured before
  std::int64_t max_steps = -1;                  ///< optimizer steps; -1: no limit
  std::int64_t min_steps = 0;                   ///< stop() is not honoured before
  StrategyOptions strategy = Auto{};
  PrecisionOptions precision = Fp32{};
  std::string accelerator = "auto";  ///< "auto" or "cpu"
  std::string devices = "auto";      ///< ranks on this node: "auto" (1) or a number
  int num_nodes = 1;

  BatchLimit limit_train_batches = {};
  BatchLimit limit_val_batches = {};
  BatchLimit limit_test_batches = {};
  int check_val_every_n_epoch = 1;
  int num_sanity_val_steps = 2;  ///< validation batches run before training; -1: all

  int accumulate_grad_batches = 1;  ///< micro-batches per optimizer step
  PartialWindow partial_window = PartialWindow::kAccumulated;
  std::optional<double> gradient_clip_val = {};
  ClipAlgorithm gradient_clip_algorithm = ClipAlgorithm::kNorm;
  bool detect_anomaly = false;  ///< fail at the first loss or gradient that is not finite

  int log_every_n_steps = 50;
  bool logger = true;                ///< write metrics.csv
  bool enable_checkpointing = true;  ///< write checkpoints/last.ckpt at the end of fit
  bool async_checkpoint = false;     ///< write checkpoints while training goes on
  bool enable_progress_bar = true;

  std::vector<std::shared_ptr<Callback>> callbacks = {};         ///< in the order in which they are called
  std::shared_ptr<ClusterEnvironment> cluster_environment = {};  ///< none: detected
  RunOptions run = {};                                           ///< filled in by ls::run()
};

LOCKSTEP_API void describe(OptionVisitor& visitor, TrainerOptions& options);
LOCKSTEP_API void describe(OptionVisitor& visitor, RunOptions& options);

}  // namespace lockstep
