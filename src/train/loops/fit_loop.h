// The training loop: epochs of accumulation windows of micro-batches, automatic optimisation of a
// micro-batch, and the schedule of validations.
//
// Vocabulary. A *micro-batch* is what one training_step gets. A *window* is the run of
// accumulate_grad_batches micro-batches whose gradients make one *optimizer step*; windows start
// anew with each epoch, so an epoch's last one may be short, or are carried into the next
// (accumulation_window.h). Only the backward pass of a window's last micro-batch exchanges gradients between
// ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "train/checkpoints/interruption.h"
#include "train/data/accumulation_window.h"
#include "train/loops/batch_step.h"
#include "train/loops/captured_window.h"
#include "train/loops/run_diagnoses.h"
#include "train/loops/trainer_state.h"
#include "train/stopping/agreement_cadence.h"

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

  /// Runs one micro-batch, captured where cuda_graphs asks for it. Returns this
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
  bool is_captured() const;
  Scalar run_captured(const AnyBatch& batch, const Window& window, StepContext& step);
  CapturedStep::Tensors run_recorded(const CapturedStep::Tensors& inputs);
  at::Tensor on_device(const Scalar& value, const char* what) const;
  std::vector<at::Tensor> accumulating() const;
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
  std::optional<CapturedWindow> captured_;
  const AnyBatch* batch_ = nullptr;  // of the captured micro-batch under way
  Window window_;
  StepContext* step_ = nullptr;
  // About the open window. The values hold for a window that another process has begun:
  bool has_batch_ = true;  // one that was not empty
  Scalar is_step_taken_ = 1;
  bool has_loss_ = true;  // one that backward has run of
};

/// Implements val_check_interval and check_val_every_n_epoch. Borrows its arguments.
class ValidationSchedule {
 public:
  /// `epoch_batches` may be kUnknownLength.
  /// @throws ConfigError when the interval is longer than an epoch, or a fraction of one of unknown length
  ValidationSchedule(const RunSetup& setup, const RunData& data, const FitProgress& progress,
                     std::int64_t epoch_batches);

  /// Whether a validation follows this batch, by the number of batches or by rank 0's clock; a stop of the
  /// run is not considered. `epoch_batches` is the number of batches as far as it is known. Must be called
  /// once per batch, by all ranks.
  bool is_due(std::int64_t batch_idx, std::int64_t epoch_batches);

  /// The same for a batch that the process before has run; false for intervals of time.
  bool was_due(std::int64_t batch_idx, std::int64_t epoch_batches) const;

  /// Whether there is a validation in the current epoch.
  bool in_epoch() const;

  /// Call where the training data has been reloaded. @throws ConfigError as the constructor
  void set_epoch_batches(std::int64_t epoch_batches);

  /// Call at the end of a validation.
  void restart();

 private:
  void check(std::int64_t epoch_batches) const;

  const RunSetup& setup_;
  const RunData& data_;
  const FitProgress& progress_;
  std::int64_t batches_ = 1;          // from one validation to the next
  std::optional<AgreedClock> clock_;  // where time says when
};

/// Runs the epochs of one fit.
class FitLoop {
 public:
  explicit FitLoop(TrainerState& state)
      : state_(state),
        stop_vote_(state.setup, state.stop),
        interruption_(state.fit),
        measure_(state.setup, state.data.module.get(), "training_step"),
        automatic_(state.setup, state.progress, state.hooks, state.status, measure_),
        is_automatic_(state.setup.module->automatic_optimization()) {}

  /// Trains until max_epochs, max_steps or stop(), from where FitProgress says. Calls `on_begin` after
  /// on_train_start, or without it where nothing is left to train. Collective.
  /// @throws Terminated where a signal ends it before
  void run(const std::function<void()>& on_begin);

 private:
  bool steps_reached() const;
  void say_which_limit() const;
  bool stop_honoured() const;
  bool is_over() const;  // also in the midst of an epoch
  bool done() const;
  bool has_epoch_to_end() const;  // one that was begun, though the fit is done
  Scalar optimize(const AnyBatch& batch, const Window& window, StepContext& step);
  MicroBatch micro_batch(std::int64_t batch_idx) const;

  void take_training_data();
  void run_epoch();
  void start_epoch();
  void end_epoch();
  void call_epoch_end(bool monitors, FitPhase then);
  void run_batches();
  bool next_batch(BatchStream& stream, AnyBatch& batch);
  void end_epoch_at(std::int64_t batches);
  void finish_epoch();
  void run_batch(AnyBatch& batch, std::int64_t batch_idx);
  void after_steps();
  bool asks_to_skip(StepContext& step);
  void close_window(StepContext& step);
  void close_window_at_end();
  void finish_batch();
  void write_step_row();
  // Schedules that watch no metric advance with the step or with the epoch's last batch; those that watch one
  // advance after the validation that measures it. `count` is the number of optimizer steps or epochs,
  // including the current one.
  void advance_schedule(TrainContext& context, Interval interval, bool watching, std::int64_t count);
  std::optional<double> monitored(const TrainContext& context, Interval interval) const;
  void validate_shorter_epoch();
  void validate_if_due();

  TrainerState& state_;
  StopVote stop_vote_;
  Interruption interruption_;
  StepMeasure measure_;
  AutomaticOptimization automatic_;
  bool is_automatic_;
  DataWaits data_waits_;
  MemoryNotes memory_notes_;
  std::vector<at::Tensor>
      untrained_buffers_;  // which follow rank 0's after each step, but for those of engines
  std::int64_t num_batches_ = 0;
  bool is_stream_ = false;                          // of which only the end tells the length
  std::optional<ValidationSchedule> val_schedule_;  // from the begin of run()
  bool is_cut_ = false;      // the epoch, before its end: what it would have measured is not there
  bool is_skipped_ = false;  // the rest of the epoch, as a hook asked
};

}  // namespace lockstep::detail
