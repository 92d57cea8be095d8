// What becomes of one micro-batch where the Trainer runs backward and steps the optimizer.
#pragma once

#include "train/data/accumulation_window.h"
#include "train/loops/batch_step.h"
#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// Lets a micro-batch without a loss add nothing, as `what` says (the loader left it empty, or training_step
/// gave no tensor), with a warning unless `has_warned`, which is set. Returns the loss that hooks then see:
/// not a number. Not Collective.
/// @throws ConfigError in a world of several, where others would wait for its gradients
double leave_out_loss(const RunSetup& setup, bool& has_warned, const char* what, const StepContext& step);

/// Borrows its arguments.
class AutomaticOptimization {
 public:
  AutomaticOptimization(const RunSetup& setup, FitProgress& progress, HookList& hooks, LoopStatus& status,
                        const StepMeasure& measure)
      : setup_(setup), progress_(progress), hooks_(hooks), status_(status), measure_(measure) {}

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
  Optimizer& optimizer() const { return *setup_.optimizers.front().optimizer; }

  const RunSetup& setup_;
  FitProgress& progress_;
  HookList& hooks_;
  LoopStatus& status_;
  const StepMeasure& measure_;
  // The window, of what another process ran nobody knows:
  bool has_batch_ = true;  // one that was not empty
  bool has_left_out_step_ = false;
  bool has_loss_ = true;  // one that backward has run of
};

}  // namespace lockstep::detail
