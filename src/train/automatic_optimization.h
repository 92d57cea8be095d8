// What becomes of one micro-batch where the Trainer runs backward and steps the optimizer.
#pragma once

#include "train/accumulation_window.h"
#include "train/run_state.h"
#include "train/step_measure.h"

namespace lockstep::detail {

/// Borrows the state and the measure.
class AutomaticOptimization {
 public:
  AutomaticOptimization(RunState& state, const StepMeasure& measure) : state_(state), measure_(measure) {}

  /// Returns the loss as training_step gave it: this rank's, not divided. Collective where `window.last`.
  double run(const AnyBatch& batch, const Window& window, StepContext& step);
  /// Takes the step of a window that waits for more micro-batches than it gets, by the mean of those that it
  /// has. Collective.
  void close_window(const OpenWindow& window, StepContext& step);
  /// Whether the latest step was not taken, as gradients were infinite or NaN.
  bool has_left_out_step() const { return has_left_out_step_; }

 private:
  double run_closures(const AnyBatch& batch, StepContext& step);
  at::Tensor training_step(const AnyBatch& batch, StepContext& step);
  double checked_value(const at::Tensor& loss, const StepContext& step) const;
  void open_window(StepContext& step);
  void backward(at::Tensor loss, const Window& window, StepContext& step);
  void optimizer_step(StepContext& step);
  void skip_scaled_step(StepContext& step);
  void clip_gradients(StepContext& step);
  Optimizer& optimizer() const { return *state_.optimizers.front().optimizer; }

  RunState& state_;
  const StepMeasure& measure_;
  // The window, of what another process ran nobody knows:
  bool has_batch_ = true;  // one that was not empty
  bool has_left_out_step_ = false;
  bool has_loss_ = true;  // one that backward has run of
};

}  // namespace lockstep::detail
