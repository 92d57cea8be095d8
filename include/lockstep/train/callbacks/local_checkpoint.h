// LocalCheckpoint: the latest moments of a fit in the memory of the nodes, for ranks that are started anew.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <lockstep/train/callbacks/local_checkpoint_options.h>
#include <lockstep/train/hooks.h>

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

}  // namespace lockstep
