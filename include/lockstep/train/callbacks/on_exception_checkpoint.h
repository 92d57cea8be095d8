// OnExceptionCheckpoint: saves a fit that fails.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include <lockstep/train/hooks.h>

namespace lockstep {

struct OnExceptionCheckpointOptions {
  std::filesystem::path dirpath = {};     ///< empty: checkpoints/ in the run's folder
  std::string filename = "on_exception";  ///< without .ckpt
  /// How long a rank that fails waits for the others to fail, too.
  std::chrono::milliseconds deadline = std::chrono::milliseconds(500);
};

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
