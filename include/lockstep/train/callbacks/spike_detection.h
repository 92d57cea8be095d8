// SpikeDetection: ends a fit whose loss jumps.
#pragma once

#include <lockstep/fabric/spike_detector.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

/// Gives the loss of every training batch to a SpikeDetector: one small exchange between ranks in each. The
/// fit ends on all ranks with TrainingSpike. Lightning's SpikeDetection.
class LOCKSTEP_API SpikeDetection final : public Callback {
 public:
  /// @throws ConfigError as SpikeDetector
  explicit SpikeDetection(SpikeDetectionOptions options = {});

  const SpikeDetector& detector() const { return detector_; }

  void setup(TrainContext& context) override;
  /// @throws TrainingSpike
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  StateTree state() const override { return detector_.state(); }
  void load_state(const StateTree& state) override { detector_.load_state(state); }

 private:
  SpikeDetectionOptions options_;
  SpikeDetector detector_;
};

}  // namespace lockstep
