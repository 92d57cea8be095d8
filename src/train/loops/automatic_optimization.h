// Automatic optimisation: backward pass, gradient clipping and optimizer step of one micro-batch.
#pragma once

#include <optional>

#include <lockstep/device/captured_step.h>

#include "train/data/accumulation_window.h"
#include "train/loops/batch_step.h"
#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// Handles a micro-batch that has no loss because of `what` (the loader gave no batch, or training_step gave
/// no tensor): it adds nothing to the gradients. Logs a warning unless `has_warned`, and sets that. Returns
/// NaN, the loss that hooks see. Not Collective.
/// @throws ConfigError where there are several ranks, since the others would wait for its gradients
double leave_out_loss(const RunSetup& setup, bool& has_warned, const char* what, const StepContext& step);

/// Borrows its arguments.
class AutomaticOptimization {
 public:
  AutomaticOptimization(const RunSetup& setup, FitProgress& progress, HookList& hooks, LoopStatus& status,
                        const StepMeasure& measure)
      : setup_(setup), progress_(progress), hooks_(hooks), status_(status), measure_(measure) {}

  /// Runs one micro-batch, captured where cuda_graphs asks for it and the window has no other. Returns this
  /// rank's loss as training_step gave it, not divided by the window's length. Collective where
  /// `window.last`.
  Scalar run(const AnyBatch& batch, const Window& window, StepContext& step);
  /// Takes the optimizer step of a window that gets fewer micro-batches than it was opened for, with the mean
  /// of the gradients of those that ran. Collective.
  void close_window(const OpenWindow& window, StepContext& step);
  /// Whether the latest step was not taken, as gradients were infinite or NaN.
  bool has_left_out_step() const { return is_step_taken_ == 0; }

 private:
  Scalar run_micro_batch(const AnyBatch& batch, const Window& window, StepContext& step);
  bool is_captured(const Window& window);
  Scalar run_captured(const AnyBatch& batch, StepContext& step);
  CapturedStep::Tensors run_recorded(const CapturedStep::Tensors& inputs);
  at::Tensor on_device(const Scalar& value, const char* what) const;
  Scalar run_closures(const AnyBatch& batch, StepContext& step);
  at::Tensor training_step(const AnyBatch& batch, StepContext& step);
  Scalar checked_value(const at::Tensor& loss, const StepContext& step) const;
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
  std::optional<CapturedStep> captured_;
  const AnyBatch* batch_ = nullptr;  // of the captured step under way
  StepContext* step_ = nullptr;
  bool has_warned_of_windows_ = false;
  // About the open window. The values hold for a window that another process has begun:
  bool has_batch_ = true;  // one that was not empty
  Scalar is_step_taken_ = 1;
  bool has_loss_ = true;  // one that backward has run of
};

}  // namespace lockstep::detail
