// BatchSizeFinder: a fit that first finds the size of its batches.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/train/hooks.h>
#include <lockstep/train/tuner_options.h>

namespace lockstep {

/// Tuner::scale_batch_size() at the start of fit, which goes on with batches of the size found. The data come
/// from a DataModule. A run that goes on from a checkpoint is not searched: its batches are what the program
/// says. Lightning's BatchSizeFinder.
class LOCKSTEP_API BatchSizeFinder final : public Callback {
 public:
  /// @throws ConfigError for another method than kFit
  explicit BatchSizeFinder(ScaleBatchSizeOptions options = {});

  /// Samples of a rank's batch; none before the search.
  std::optional<std::int64_t> optimal_batch_size() const { return optimal_batch_size_; }

  CallbackPlace place() const override { return CallbackPlace::kTuner; }
  void on_fit_start(TrainContext& context) override;

 private:
  ScaleBatchSizeOptions options_;
  std::optional<std::int64_t> optimal_batch_size_;
};

}  // namespace lockstep
