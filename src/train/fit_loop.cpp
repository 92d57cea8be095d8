#include "train/fit_loop.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "train/callbacks/monitored_metric.h"
#include "train/data_place.h"
#include "train/evaluation_loop.h"
#include "train/fit_checkpoint.h"
#include "train/log_scope.h"
#include "train/manual_optimization.h"
#include "train/no_loss.h"
#include "train/open_data.h"
#include "train/transfer_batch.h"

namespace lockstep::detail {
namespace {

// They stay so: a part that is frozen may be meant.
void warn_of_evaluation_mode(const RunState& state) {
  const auto modules = state.module->modules();
  const auto count =
      std::ranges::count_if(modules, [](const auto& module) { return !module->is_training(); });
  if (count == 0 || !state.is_global_zero()) return;
  log_warning(std::to_string(count) + " of " + std::to_string(modules.size()) +
              " modules are in evaluation mode as training begins, and stay so; train() changes that");
}

// As in Lightning no step is taken with them.
void warn_of_lost_gradients(const RunState& state) {
  if (!state.is_global_zero()) return;
  log_warning(
      "the end of epoch " + std::to_string(state.progress.epoch) + ", which came early: the gradients of " +
      std::to_string(state.progress.window.done) +
      " micro-batches, whose window was open, are dropped; partial_window = accumulated takes a step with "
      "them, carry keeps them");
}

}  // namespace

// A stream that has told its length to another process needs not tell it again.
void FitLoop::run(const std::function<void()>& on_begin) {
  const auto& progress = state_.progress;
  const auto told = progress.phase == FitPhase::kEpochStart ? kUnknownLength : progress.num_training_batches;
  take_training_data();
  val_schedule_.emplace(state_, num_batches_);
  if (is_stream_) end_epoch_at(std::min(num_batches_, told));
  stop_vote_.begin();
  // One that goes on from its end begins and ends all the same: callbacks make of it then what it is.
  if (!state_.moment && (num_batches_ == 0 || done())) return on_begin();

  warn_of_evaluation_mode(state_);
  TrainContext context(state_);
  {
    LogScopeGuard scope(state_, state_.train_log, kEpochLog);
    state_.hooks.call(hook::on_train_start, context);
  }
  on_begin();
  while (num_batches_ > 0 && (!done() || has_epoch_to_end())) run_epoch();
  if (!state_.moment) keep_moment(state_);  // on_train_end may put other weights in the place of these
  state_.hooks.call(hook::on_train_end, context);
}

void FitLoop::take_training_data() {
  is_stream_ = state_.train_loader->num_batches(state_.shard(/*pad=*/true)) == kUnknownLength;
  end_epoch_at(num_training_batches(state_));
}

bool FitLoop::steps_reached() const {
  return state_.options.max_steps >= 0 && state_.progress.global_step >= state_.options.max_steps;
}

bool FitLoop::stop_honoured() const {
  const bool stop = state_.communicator().size() == 1 ? state_.wishes_to_stop() : state_.stop_agreed;
  return stop && state_.progress.epoch >= *state_.options.min_epochs &&
         state_.progress.global_step >= state_.options.min_steps;
}

bool FitLoop::is_over() const { return steps_reached() || stop_honoured(); }

bool FitLoop::done() const {
  const auto max_epochs = *state_.options.max_epochs;
  return is_over() || (max_epochs >= 0 && state_.progress.epoch >= max_epochs);
}

// Of an epoch that was left in its middle a longer run does the rest.
bool FitLoop::has_epoch_to_end() const {
  const auto& progress = state_.progress;
  const bool was_left = progress.phase == FitPhase::kBatches && progress.batches < num_batches_;
  return progress.phase != FitPhase::kEpochStart && !was_left;
}

MicroBatch FitLoop::micro_batch(std::int64_t batch_idx) const {
  return {.epoch = state_.progress.epoch, .index = batch_idx, .epoch_batches = num_batches_};
}

// An epoch that was begun in another process goes on where its phase says.
void FitLoop::run_epoch() {
  auto& progress = state_.progress;
  is_skipped_ = false;
  if (progress.phase == FitPhase::kEpochStart) start_epoch();
  if (progress.phase < FitPhase::kEpochEnd) {
    run_batches();
    const bool is_cut = !is_skipped_ && progress.batches < num_batches_ && is_over();
    if (is_cut) state_.on_interruption();
    is_cut_ = is_cut;
  }
  state_.hooks.call_together([this] { end_epoch(); });
  finish_epoch();
}

// Those that monitor see what the epoch's metrics have come to, and what all ranks' last steps logged.
void FitLoop::end_epoch() {
  auto& progress = state_.progress;
  if (progress.phase < FitPhase::kEpochEnd) call_epoch_end(/*monitors=*/false, FitPhase::kEpochEnd);
  if (progress.phase != FitPhase::kEpochEnd) return;
  state_.train_log.sync_step_values(state_.communicator());
  state_.write_metrics(state_.train_log.finish_epoch(state_.communicator()),
                       std::max<std::int64_t>(0, progress.batches_that_stepped - 1));
  call_epoch_end(/*monitors=*/true, FitPhase::kEpochLogged);
}

// A checkpoint that is taken in a hook says that the hook has been called.
void FitLoop::start_epoch() {
  if (const auto next = std::exchange(state_.next_accumulation, std::nullopt))
    state_.options.accumulate_grad_batches = *next;
  const bool is_other_data = reload_training_data(state_);
  if (is_other_data || is_stream_) take_training_data();
  if (is_other_data) val_schedule_->set_epoch_batches(num_batches_);
  TrainContext context(state_);
  LogScopeGuard scope(state_, state_.train_log, kEpochLog);
  state_.progress.phase = FitPhase::kBatches;
  state_.hooks.call(hook::on_train_epoch_start, context);
}

void FitLoop::call_epoch_end(bool monitors, FitPhase then) {
  TrainContext context(state_);
  LogScopeGuard scope(state_, state_.train_log, monitors ? kNoLog : kEpochLog);
  state_.progress.phase = then;
  state_.hooks.call_on(monitors, hook::on_train_epoch_end, context);
}

void FitLoop::run_batches() {
  auto& progress = state_.progress;
  const auto stream =
      with_tensors(state_.train_loader->stream(state_.shard(/*pad=*/true), progress.epoch, progress.batches),
                   state_.input_conversion());
  if (progress.phase != FitPhase::kBatches) {  // the rest of a batch that another process ran
    state_.validation_is_due = val_schedule_->was_due(progress.batches - 1, num_batches_);
    finish_batch();
  }
  if (std::exchange(state_.epoch_became_shorter, false)) {
    close_window_at_end();
    validate_shorter_epoch();
  }
  AnyBatch batch;
  while (!is_over() && progress.batches < num_batches_) {
    if (!measure_.next(*stream, batch)) {
      check_end_of_data(state_, is_stream_);
      end_epoch_at(progress.batches);
      return close_window_at_end();
    }
    if (stream->is_last()) end_epoch_at(progress.batches + 1);
    run_batch(batch, progress.batches);
    if (is_skipped_) return;
    finish_batch();
    interruption_.heed();
  }
}

// A stream has told how long it is.
void FitLoop::end_epoch_at(std::int64_t batches) {
  num_batches_ = batches;
  state_.progress.num_training_batches = batches;
}

void FitLoop::finish_epoch() {
  TrainContext context(state_);
  if (!is_cut_) advance_schedule(context, Interval::kEpoch, /*watching=*/true, state_.progress.epoch + 1);
  for (const auto& logger : state_.loggers) logger->flush();
  stop_vote_.take();
  ++state_.progress.epoch;
  state_.progress.batches_before += state_.progress.batches;
  state_.progress.batches = 0;
  state_.progress.window = state_.windows(!is_stream_).behind_epoch(state_.progress.window);
  state_.progress.phase = FitPhase::kEpochStart;
}

double FitLoop::optimize(const AnyBatch& batch, const Window& window, StepContext& step) {
  if (is_automatic_) return automatic_.run(batch, window, step);
  return batch.empty() ? leave_out_loss(state_, "the loader gave no batch", step)
                       : run_manual_step(state_, measure_, batch, step);
}

void FitLoop::run_batch(const AnyBatch& loaded, std::int64_t batch_idx) {
  LogScopeGuard scope(state_, state_.train_log, kTrainStepLog);
  auto& progress = state_.progress;
  progress.phase = FitPhase::kInBatch;
  progress.steps_before_batch = progress.global_step;
  inject(state_.options.run.fault, state_.environment->global_rank(), progress.global_step);
  const auto batch = transferred(state_, loaded, batch_idx);
  StepContext step(state_, batch_idx, batch);
  const auto rule = state_.windows(!is_stream_);
  const auto window = rule.place(progress.window, micro_batch(batch_idx));
  if (!batch.empty()) state_.train_log.set_batch_size(batch.size());
  is_skipped_ = !batch.empty() && asks_to_skip(step);
  if (is_skipped_) close_window(step);
  TrainOutput output{.loss = std::numeric_limits<double>::quiet_NaN()};
  if (!is_skipped_) output.loss = optimize(batch, window, step);
  // The end of an epoch that is skipped counts as Lightning's does: for schedules that count every step.
  if (progress.global_step != progress.steps_before_batch || is_skipped_)
    advance_schedule(step, Interval::kStep, /*watching=*/false,
                     progress.global_step == progress.steps_before_batch ? 1 : progress.global_step);
  if (batch_idx + 1 == num_batches_ || is_skipped_)
    advance_schedule(step, Interval::kEpoch, /*watching=*/false, progress.epoch + 1);
  ++progress.batches;
  progress.phase = FitPhase::kBatches;
  if (is_skipped_) return;
  progress.window = rule.behind(progress.window, micro_batch(batch_idx));
  state_.validation_is_due = val_schedule_->is_due(batch_idx, num_batches_);
  progress.samples += batch.size() * step.world_size();
  progress.phase = FitPhase::kBatchEnd;
  state_.hooks.call(hook::on_train_batch_end, step, output);
}

// Where no batch was known to be the last when it ran.
void FitLoop::close_window_at_end() {
  LogScopeGuard scope(state_, state_.train_log, kTrainStepLog);
  const AnyBatch none;
  StepContext step(state_, state_.progress.batches - 1, none);
  const auto before = state_.progress.global_step;
  close_window(step);
  if (state_.progress.global_step != before)
    advance_schedule(step, Interval::kStep, /*watching=*/false, state_.progress.global_step);
}

// Of an epoch that ends before the micro-batches that an open window waits for.
void FitLoop::close_window(StepContext& step) {
  auto& progress = state_.progress;
  if (progress.window.done == 0) return;
  if (state_.options.partial_window == PartialWindow::kLightning) warn_of_lost_gradients(state_);
  if (state_.options.partial_window != PartialWindow::kAccumulated) return;
  automatic_.close_window(std::exchange(progress.window, {}), step);
  ++progress.batches_that_stepped;
}

bool FitLoop::asks_to_skip(StepContext& step) {
  state_.skip_request = SkipRequest::kPossible;
  state_.hooks.call(hook::on_train_batch_start, step);
  return std::exchange(state_.skip_request, SkipRequest::kRefused) == SkipRequest::kMade;
}

// What follows on_train_batch_end.
void FitLoop::finish_batch() {
  auto& progress = state_.progress;
  const bool stepped = progress.window.done == 0;
  LogScopeGuard scope(state_, state_.train_log, kTrainStepLog);
  notice_failed_save(state_);
  if (progress.phase == FitPhase::kBatchEnd) {
    if (stepped) write_step_row();
    stop_vote_.take_in_time(stepped);
    progress.validation = {};
    progress.phase = FitPhase::kValidation;
  }
  validate_if_due();
  // Schedules that watch a metric come after the validation that measures it.
  TrainContext context(state_);
  if (stepped && progress.global_step != progress.steps_before_batch)
    advance_schedule(context, Interval::kStep, /*watching=*/true, progress.global_step);
  if (stepped) ++progress.batches_that_stepped;
  progress.phase = FitPhase::kBatches;
}

void FitLoop::write_step_row() {
  const auto stepped = state_.progress.batches_that_stepped;
  const int every = state_.options.log_every_n_steps;
  if (every <= 0 || (stepped + 1) % every != 0) return;
  state_.train_log.sync_step_values(state_.communicator());
  state_.write_metrics(state_.train_log.step_row(), stepped);
  stop_vote_.take();
}

void FitLoop::advance_schedule(TrainContext& context, Interval interval, bool watching, std::int64_t count) {
  if (!is_automatic_) return;
  const auto& [module, optimizer, config, scheduler] = state_.optimizers.front();
  // DeepSpeed's count steps that were taken.
  if (state_.deepspeed && interval == Interval::kStep && automatic_.has_left_out_step()) return;
  if (!scheduler || config->interval != interval || scheduler->needs_metric() != watching ||
      count % config->frequency != 0) {
    return;
  }
  const auto metric = watching ? monitored(context, interval) : std::nullopt;
  if (watching && !metric) return;
  state_.module->lr_scheduler_step(context, *scheduler, metric);
}

// None where no validation has measured it: not yet, or not in this epoch. Ranks may have measured different
// values; they must go by one.
std::optional<double> FitLoop::monitored(const TrainContext& context, Interval interval) const {
  const auto& name = state_.optimizers.front().lr_scheduler->monitor;
  if (interval == Interval::kStep) state_.train_log.sync_step_values(state_.communicator());
  const auto found = monitored_metric(context, name);
  if (!found && awaits_validation(context)) return std::nullopt;
  if (!found) refuse_missing("lr_scheduler", context, name);
  const bool is_of_epoch = found->measured.number == 0 || found->measured.epoch == state_.progress.epoch;
  return interval == Interval::kStep || is_of_epoch ? std::optional(found->value) : std::nullopt;
}

// Its batches are done, but it was longer when the last of them ran.
void FitLoop::validate_shorter_epoch() {
  if (!state_.options.val_check_interval.is_whole_epoch()) return;
  LogScopeGuard scope(state_, state_.train_log, kTrainStepLog);
  auto& progress = state_.progress;
  state_.validation_is_due = val_schedule_->was_due(progress.batches - 1, num_batches_);
  progress.phase = FitPhase::kValidation;
  validate_if_due();
  progress.phase = FitPhase::kBatches;
}

void FitLoop::validate_if_due() {
  if (state_.val_loaders.empty()) return;
  const bool was_begun = state_.progress.validation != EvaluationProgress{};
  const bool ends_run = val_schedule_->in_epoch() && stop_honoured();
  if (!was_begun && !state_.validation_is_due && !ends_run) return;
  if (!was_begun) {
    TrainContext context(state_);
    if (!is_inside_window(state_)) state_.module->on_validation_model_zero_grad(context);
    reload_validation_data(state_);
    state_.train_log.sync_step_values(
        state_.communicator());  // for those that monitor, before it logs its own
  }
  const auto limits = evaluation_limits(state_, state_.val_loaders, Stage::kValidate);
  run_evaluation_loop(state_, state_.val_loaders, Stage::kFit, limits, state_.progress.validation,
                      [this] { interruption_.heed(); });
  val_schedule_->restart();
  stop_vote_.take();  // by what was measured
}

}  // namespace lockstep::detail
