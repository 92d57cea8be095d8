// The training loop: epochs of accumulation windows of micro-batches.
//
// Vocabulary. A *micro-batch* is what one training_step gets. A *window* is the run of
// accumulate_grad_batches micro-batches whose gradients make one *optimizer step*; windows start
// anew with each epoch, so an epoch's last one may be short, or are carried into the next
// (accumulation_window.h). Only the backward pass of a window's last micro-batch exchanges gradients between
// ranks.
#pragma once

#include <functional>
#include <optional>

#include "train/checkpoints/interruption.h"
#include "train/loops/automatic_optimization.h"
#include "train/loops/batch_step.h"
#include "train/loops/trainer_state.h"
#include "train/loops/validation_schedule.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

class FitLoop {
 public:
  explicit FitLoop(TrainerState& state)
      : state_(state),
        stop_vote_(state.setup, state.stop),
        interruption_(state.fit),
        measure_(state.setup, "training_step"),
        automatic_(state.setup, state.progress, state.hooks, state.status, measure_),
        is_automatic_(state.setup.module->automatic_optimization()) {}

  /// Trains until max_epochs, max_steps or stop(), from where FitProgress says. Calls `on_begin` after
  /// on_train_start, or without it where nothing is left to train. Collective.
  /// @throws Terminated where a signal ends it before
  void run(const std::function<void()>& on_begin);

 private:
  bool steps_reached() const;
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
  void end_epoch_at(std::int64_t batches);
  void finish_epoch();
  void run_batch(AnyBatch& batch, std::int64_t batch_idx);
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
  std::int64_t num_batches_ = 0;
  bool is_stream_ = false;                          // of which only the end tells the length
  std::optional<ValidationSchedule> val_schedule_;  // from the begin of run()
  bool is_cut_ = false;      // the epoch, before its end: what it would have measured is not there
  bool is_skipped_ = false;  // the rest of the epoch, as a hook asked
};

}  // namespace lockstep::detail
