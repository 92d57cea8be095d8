// The callbacks that save against failures: LocalCheckpoint, to the memory of the nodes, for ranks that are
// started anew, and OnExceptionCheckpoint, where a fit fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/train/hooks.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep {

namespace detail {
class LocalCheckpoints;
}

/// Saves the state from which the ranks of a node can resume to a folder in memory, every
/// `every_n_train_steps` optimizer steps; the next nodes get copies while training continues. Only the latest
/// checkpoint is stored. `resume = auto` takes it where no checkpoint on disk was written later, and ranks
/// that a launcher has started anew take it in any case (docs/checkpointing.md). A fit that ends well removes
/// it.
///
/// TrainerOptions::local_checkpoint adds one. NVIDIA's LocalCheckpointCallback, with its
/// LocalCheckpointManager.
class LOCKSTEP_API LocalCheckpoint final : public Callback {
 public:
  /// @throws ConfigError for an interval or replication_factor below 1
  explicit LocalCheckpoint(LocalCheckpointOptions options);
  ~LocalCheckpoint() override;

  CallbackPlace place() const override { return CallbackPlace::kCheckpoint; }
  StateTree state() const override;
  void load_state(const StateTree& state) override;
  void setup(TrainContext& context) override;
  void on_train_start(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void teardown(TrainContext& context) override;

  /// For the library: the local checkpoints of the current fit; null outside of a fit.
  detail::LocalCheckpoints* checkpoints() const { return checkpoints_.get(); }
  /// For the library: waits for the checkpoint that is being written, and closes the groups of the current
  /// fit. Blocking.
  void release();

 private:
  LocalCheckpointOptions options_;
  std::unique_ptr<detail::LocalCheckpoints> checkpoints_;
  std::optional<std::int64_t> last_due_ = {};  // the step from which every_n_train_steps counts
};

/// Where a run that fails saves what there is.
struct OnExceptionCheckpointOptions {
  std::filesystem::path dirpath = {};     ///< empty: checkpoints/ in the run's folder
  std::string filename = "on_exception";  ///< without .ckpt
  /// How long a rank that fails waits for the others to fail, too.
  std::chrono::milliseconds deadline = std::chrono::milliseconds(500);
};

LOCKSTEP_API void describe(OptionVisitor& visitor, OnExceptionCheckpointOptions& options);

/// Saves as TrainContext::save_after_failure() does: a checkpoint to go on from where all ranks failed at the
/// same place, the weights of one of them otherwise. ckpt_path = "last" and resume = auto find it; a fit that
/// ends well removes it. Lightning's OnExceptionCheckpoint, which waits for ever for ranks that have not
/// failed.
class LOCKSTEP_API OnExceptionCheckpoint final : public Callback {
 public:
  /// @throws ConfigError for an empty filename, or a negative deadline
  explicit OnExceptionCheckpoint(OnExceptionCheckpointOptions options = {});

  /// Where the checkpoint is written; without a `dirpath` known from setup() on.
  std::filesystem::path ckpt_path() const;
  /// What was saved of the last fit that failed.
  SavedAfterFailure saved() const { return saved_; }

  CallbackPlace place() const override { return CallbackPlace::kCheckpoint; }
  void setup(TrainContext& context) override;
  void on_fit_start(TrainContext& context) override;
  void on_fit_end(TrainContext& context) override;
  void on_exception(TrainContext& context, const std::exception& error) override;

 private:
  OnExceptionCheckpointOptions options_;
  std::filesystem::path dirpath_;
  SavedAfterFailure saved_ = SavedAfterFailure::kNothing;
};

}  // namespace lockstep
