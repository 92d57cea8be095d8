#include "train/loops/fit_loop.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/profilers/profiler.h>
#include <lockstep/torch.h>
#include <lockstep/train/callbacks/timer.h>

#include "train/activity_scope.h"
#include "train/callbacks/monitored_metric.h"
#include "train/checkpoints/fit_checkpoint.h"
#include "train/data/data_place.h"
#include "train/data/run_data.h"
#include "train/logging/run_log.h"
#include "train/loops/batch_step.h"
#include "train/loops/evaluation_loop.h"

namespace lockstep::detail {
namespace {

// Only warns: evaluation mode of frozen parts may be intended.
void warn_of_evaluation_mode(const RunSetup& setup) {
  const auto modules = setup.module->modules();
  const auto count =
      std::ranges::count_if(modules, [](const auto& module) { return !module->is_training(); });
  if (count == 0 || !setup.is_global_zero()) return;
  log_warning(std::to_string(count) + " of " + std::to_string(modules.size()) +
              " modules are in evaluation mode as training begins, and remain in it; train() changes that");
}

// Engines keep the buffers of parts that optimizers train equal; DistributedDataParallel, which wraps the
// whole module, those of the other parts, too.
std::vector<at::Tensor> buffers_of_untrained_parts(const RunSetup& setup) {
  if (setup.communicator().size() == 1 || !setup.strategy->broadcasts_buffers()) return {};
  std::unordered_set<const at::TensorImpl*> trained;
  for (const auto& one : setup.optimizers)
    for (const auto& buffer : one.module->buffers()) trained.insert(buffer.unsafeGetTensorImpl());
  auto buffers = setup.module->buffers();
  std::erase_if(buffers, [&](const auto& buffer) { return trained.contains(buffer.unsafeGetTensorImpl()); });
  return buffers;
}

// As in Lightning these gradients are dropped without a step.
void warn_of_lost_gradients(const RunSetup& setup, const FitProgress& progress) {
  if (!setup.is_global_zero()) return;
  log_warning("the end of epoch " + std::to_string(progress.epoch) + ", which came early: the gradients of " +
              std::to_string(progress.window.done) +
              " micro-batches, whose window was open, are dropped; partial_window = accumulated takes a step "
              "with them, carry keeps them");
}

bool ends_by_the_clock(const RunSetup& setup) {
  return std::ranges::any_of(setup.callbacks, [](const auto& callback) {
    return dynamic_cast<const Timer*>(callback.get()) != nullptr;
  });
}

}  // namespace

// A resumed run knows the length of a stream that the process before has read to its end.
void FitLoop::run(const std::function<void()>& on_begin) {
  const auto& progress = state_.progress;
  const auto told = progress.phase == FitPhase::kEpochStart ? kUnknownLength : progress.num_training_batches;
  take_training_data();
  val_schedule_.emplace(state_.setup, state_.data, state_.progress, num_batches_);
  if (is_stream_) end_epoch_at(std::min(num_batches_, told));
  stop_vote_.begin(ends_by_the_clock(state_.setup));
  // A run that resumes a complete fit calls its hooks all the same, so that callbacks can act on its end.
  if (!state_.checkpoints.resume_point && (num_batches_ == 0 || done())) {
    on_begin();
    return say_which_limit();
  }

  warn_of_evaluation_mode(state_.setup);
  const ActivityScope fit(RankActivity::kUnknown);
  untrained_buffers_ = buffers_of_untrained_parts(state_.setup);
  memory_notes_.begin(state_.setup, state_.data.train->batch_size());
  TrainContext context(state_);
  {
    LogScopeGuard scope(state_.log, state_.log.train, kEpochLog);
    state_.hooks.call(hook::on_train_start, context);
  }
  state_.setup.announce_exchange();
  stop_vote_.take();
  on_begin();
  while (num_batches_ > 0 && (!done() || has_epoch_to_end())) run_epoch();
  // What steps on a device have left to be found is an error on all ranks alike.
  if (const auto* const scaler = state_.setup.precision->grad_scaler()) (void)scaler->skipped_steps();
  if (state_.checkpoints.resume_point)
    state_.checkpoints.after_cut_epoch();
  else
    keep_resume_point(state_.fit);  // on_train_end may put other weights in the place of these
  state_.hooks.call(hook::on_train_end, context);
  say_which_limit();  // below the last line of the progress bar
}

void FitLoop::take_training_data() {
  is_stream_ = state_.data.train->num_batches(state_.setup.shard(/*pad=*/true)) == kUnknownLength;
  end_epoch_at(num_training_batches(state_.setup, state_.data));
}

bool FitLoop::steps_reached() const {
  return state_.setup.options.max_steps >= 0 && state_.progress.global_step >= state_.setup.options.max_steps;
}

bool FitLoop::stop_honoured() const {
  const bool stop = state_.setup.communicator().size() == 1 ? state_.stop.is_wanted() : state_.stop.agreed;
  return stop && state_.progress.epoch >= *state_.setup.options.min_epochs &&
         state_.progress.global_step >= state_.setup.options.min_steps;
}

bool FitLoop::is_over() const { return steps_reached() || stop_honoured(); }

bool FitLoop::done() const {
  const auto max_epochs = *state_.setup.options.max_epochs;
  return is_over() || (max_epochs >= 0 && state_.progress.epoch >= max_epochs);
}

// In Lightning's words, also where a resumed run has nothing left to do.
void FitLoop::say_which_limit() const {
  const auto& options = state_.setup.options;
  if (!state_.setup.is_global_zero() || state_.checkpoints.are_off || options.barebones) return;
  const auto max_epochs = *options.max_epochs;
  const auto say = [](const char* option, std::int64_t limit) {
    log_info("`Trainer.fit` stopped: `" + std::string(option) + "=" + std::to_string(limit) + "` reached.");
  };
  if (steps_reached()) return say("max_steps", options.max_steps);
  if (max_epochs >= 0 && state_.progress.epoch >= max_epochs) say("max_epochs", max_epochs);
}

// An epoch that was left in its middle is finished only by a longer run.
bool FitLoop::has_epoch_to_end() const {
  const auto& progress = state_.progress;
  const bool was_left = progress.phase == FitPhase::kBatches && progress.batches < num_batches_;
  return progress.phase != FitPhase::kEpochStart && !was_left;
}

MicroBatch FitLoop::micro_batch(std::int64_t batch_idx) const {
  return {.epoch = state_.progress.epoch, .index = batch_idx, .epoch_batches = num_batches_};
}

// A resumed epoch goes on where its phase says.
void FitLoop::run_epoch() {
  auto& progress = state_.progress;
  is_skipped_ = false;
  if (progress.phase == FitPhase::kEpochStart) start_epoch();
  if (progress.phase < FitPhase::kEpochEnd) {
    run_batches();
    const bool is_cut = !is_skipped_ && progress.batches < num_batches_ && is_over();
    if (is_cut) state_.checkpoints.on_interruption();
    is_cut_ = is_cut;
  }
  state_.hooks.call_together([this] { end_epoch(); });
  finish_epoch();
}

// Callbacks that monitor metrics are called after the epoch's metrics and the latest step metrics are
// reduced.
void FitLoop::end_epoch() {
  auto& progress = state_.progress;
  if (progress.phase < FitPhase::kEpochEnd) {
    state_.setup.announce_exchange();
    state_.log.train.show_epoch(state_.setup.communicator());
    call_epoch_end(/*monitors=*/false, FitPhase::kEpochEnd);
  }
  if (progress.phase != FitPhase::kEpochEnd) return;
  state_.log.train.sync_step_values(state_.setup.communicator());
  state_.log.write_metrics(state_.log.train.finish_epoch(state_.setup.communicator()), progress.epoch,
                           std::max<std::int64_t>(0, progress.batches_that_stepped - 1));
  call_epoch_end(/*monitors=*/true, FitPhase::kEpochLogged);
}

// The phase is set before the hook is called, so that a checkpoint taken in the hook does not call it again.
void FitLoop::start_epoch() {
  if (const auto next = std::exchange(state_.setup.accumulation.next, std::nullopt))
    state_.setup.options.accumulate_grad_batches = *next;
  const bool is_other_data = reload_training_data(state_.setup, state_.data, state_.progress);
  if (is_other_data || is_stream_) take_training_data();
  if (is_other_data) val_schedule_->set_epoch_batches(num_batches_);
  TrainContext context(state_);
  LogScopeGuard scope(state_.log, state_.log.train, kEpochLog);
  state_.progress.phase = FitPhase::kBatches;
  state_.hooks.call(hook::on_train_epoch_start, context);
}

void FitLoop::call_epoch_end(bool monitors, FitPhase then) {
  TrainContext context(state_);
  LogScopeGuard scope(state_.log, state_.log.train, monitors ? kNoLog : kEpochLog);
  state_.progress.phase = then;
  state_.hooks.call_on(monitors, hook::on_train_epoch_end, context);
}

void FitLoop::run_batches() {
  const ProfileScope measured(state_.setup.profiler.get(), "run_training_epoch");
  auto& progress = state_.progress;
  const auto stream = with_tensors(
      state_.data.train->stream(state_.setup.shard(/*pad=*/true), progress.epoch, progress.batches),
      state_.setup.input_conversion());
  if (progress.phase != FitPhase::kBatches) {  // the rest of a batch that another process ran
    state_.status.validation_is_due = val_schedule_->was_due(progress.batches - 1, num_batches_);
    finish_batch();
  }
  if (std::exchange(state_.progress.epoch_became_shorter, false)) {
    close_window_at_end();
    validate_shorter_epoch();
  }
  AnyBatch batch;
  while (!is_over() && progress.batches < num_batches_) {
    if (!next_batch(*stream, batch)) {
      check_end_of_data(state_.setup, state_.progress, is_stream_);
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

bool FitLoop::next_batch(BatchStream& stream, AnyBatch& batch) {
  const auto asked = DataWaits::Clock::now();
  if (!measure_.next(stream, batch)) return false;
  data_waits_.add(asked, DataWaits::Clock::now(), batch.size());
  if (const auto warning = data_waits_.take_warning(); !warning.empty()) log_warning(warning);
  return true;
}

// The number of batches of the epoch is known now.
void FitLoop::end_epoch_at(std::int64_t batches) {
  num_batches_ = batches;
  state_.progress.num_training_batches = batches;
}

void FitLoop::finish_epoch() {
  TrainContext context(state_);
  if (!is_cut_) advance_schedule(context, Interval::kEpoch, /*watching=*/true, state_.progress.epoch + 1);
  for (const auto& logger : state_.log.loggers) logger->flush();
  stop_vote_.take();
  ++state_.progress.epoch;
  state_.progress.batches_before += state_.progress.batches;
  state_.progress.batches = 0;
  state_.progress.window = window_rule(state_.setup, !is_stream_).behind_epoch(state_.progress.window);
  state_.progress.phase = FitPhase::kEpochStart;
}

Scalar FitLoop::optimize(const AnyBatch& batch, const Window& window, StepContext& step) {
  const auto measured = measure_.run_training_batch();
  if (is_automatic_) return automatic_.run(batch, window, step);
  if (!batch.empty()) return run_manual_step(state_.setup, measure_, batch, step);
  return leave_out_loss(state_.setup, state_.status.has_warned_of_no_loss, "the loader gave no batch", step);
}

void FitLoop::after_steps() {
  if (!untrained_buffers_.empty()) broadcast_coalesced(state_.setup.communicator(), untrained_buffers_);
  memory_notes_.after_step(state_.setup);
}

void FitLoop::run_batch(AnyBatch& batch, std::int64_t batch_idx) {
  LogScopeGuard scope(state_.log, state_.log.train, kTrainStepLog);
  auto& progress = state_.progress;
  progress.phase = FitPhase::kInBatch;
  progress.steps_before_batch = progress.global_step;
  inject(state_.setup.options.run.fault, state_.setup.environment->global_rank(), progress.global_step);
  StepContext step(state_, batch_idx, batch);
  transfer(state_.setup, measure_, state_.data.module.get(), batch, step);
  const auto rule = window_rule(state_.setup, !is_stream_);
  const auto window = rule.place(progress.window, micro_batch(batch_idx));
  if (!batch.empty()) state_.log.train.set_batch_size(batch.size());
  is_skipped_ = !batch.empty() && asks_to_skip(step);
  if (is_skipped_) close_window(step);
  TrainOutput output{.loss = std::numeric_limits<double>::quiet_NaN()};
  if (!is_skipped_) output.loss = optimize(batch, window, step);
  if (progress.global_step != progress.steps_before_batch) after_steps();
  // As in Lightning a skipped epoch advances schedules that count every step.
  if (progress.global_step != progress.steps_before_batch || is_skipped_)
    advance_schedule(step, Interval::kStep, /*watching=*/false,
                     progress.global_step == progress.steps_before_batch ? 1 : progress.global_step);
  if (batch_idx + 1 == num_batches_ || is_skipped_)
    advance_schedule(step, Interval::kEpoch, /*watching=*/false, progress.epoch + 1);
  ++progress.batches;
  progress.phase = FitPhase::kBatches;
  if (is_skipped_) return;
  progress.window = rule.behind(progress.window, micro_batch(batch_idx));
  state_.status.validation_is_due = val_schedule_->is_due(batch_idx, num_batches_);
  progress.samples += batch.size() * step.world_size();
  progress.phase = FitPhase::kBatchEnd;
  state_.hooks.call(hook::on_train_batch_end, step, output);
}

// For streams, whose last batch was not known to be the last when it ran.
void FitLoop::close_window_at_end() {
  LogScopeGuard scope(state_.log, state_.log.train, kTrainStepLog);
  const AnyBatch none;
  StepContext step(state_, state_.progress.batches - 1, none);
  const auto before = state_.progress.global_step;
  close_window(step);
  if (state_.progress.global_step != before)
    advance_schedule(step, Interval::kStep, /*watching=*/false, state_.progress.global_step);
}

// Closes a window that is still open where its epoch ends.
void FitLoop::close_window(StepContext& step) {
  auto& progress = state_.progress;
  if (progress.window.done == 0) return;
  if (state_.setup.options.partial_window == PartialWindow::kLightning)
    warn_of_lost_gradients(state_.setup, progress);
  if (state_.setup.options.partial_window != PartialWindow::kAccumulated) return;
  automatic_.close_window(std::exchange(progress.window, {}), step);
  ++progress.batches_that_stepped;
}

bool FitLoop::asks_to_skip(StepContext& step) {
  state_.status.skip_request = SkipRequest::kPossible;
  state_.hooks.call(hook::on_train_batch_start, step);
  return std::exchange(state_.status.skip_request, SkipRequest::kRefused) == SkipRequest::kMade;
}

// Everything that follows on_train_batch_end: metrics, validation, schedules that watch a metric.
void FitLoop::finish_batch() {
  auto& progress = state_.progress;
  const bool stepped = progress.window.done == 0;
  LogScopeGuard scope(state_.log, state_.log.train, kTrainStepLog);
  notice_failed_save(state_.fit);
  if (progress.phase == FitPhase::kBatchEnd) {
    if (stepped) write_step_row();
    stop_vote_.take_in_time(stepped, progress.batches_that_stepped);
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
  const int every = state_.setup.options.log_every_n_steps;
  if (every <= 0 || (stepped + 1) % every != 0) return;
  state_.log.train.sync_step_values(state_.setup.communicator());
  state_.log.write_metrics(state_.log.train.step_row(), state_.progress.epoch, stepped);
  stop_vote_.take();
}

void FitLoop::advance_schedule(TrainContext& context, Interval interval, bool watching, std::int64_t count) {
  if (!is_automatic_) return;
  const auto& [module, optimizer, config, scheduler] = state_.setup.optimizers.front();
  if (!scheduler || config->interval != interval || scheduler->needs_metric() != watching ||
      count % config->frequency != 0) {
    return;
  }
  // DeepSpeed's schedules do not count steps that a scaler has skipped.
  if (state_.setup.deepspeed && interval == Interval::kStep && automatic_.has_left_out_step()) return;
  const auto metric = watching ? monitored(context, interval) : std::nullopt;
  if (watching && !metric) return;
  state_.setup.module->lr_scheduler_step(context, *scheduler, metric);
}

// The metric that the schedule watches; none where no validation has measured it yet, or not in this epoch.
// Step metrics are reduced first, since all ranks must use the same value.
std::optional<double> FitLoop::monitored(const TrainContext& context, Interval interval) const {
  const auto& name = state_.setup.optimizers.front().lr_scheduler->monitor;
  if (interval == Interval::kStep) state_.log.train.sync_step_values(state_.setup.communicator());
  const auto found = monitored_metric(context, name);
  if (!found && awaits_validation(context)) return std::nullopt;
  if (!found) refuse_missing("lr_scheduler", context, name);
  const bool is_of_epoch = found->measured.number == 0 || found->measured.epoch == state_.progress.epoch;
  return interval == Interval::kStep || is_of_epoch ? std::optional(found->value) : std::nullopt;
}

// Validates an epoch that the new options have made shorter than what is already done of it.
void FitLoop::validate_shorter_epoch() {
  if (!state_.setup.options.val_check_interval.is_whole_epoch()) return;
  LogScopeGuard scope(state_.log, state_.log.train, kTrainStepLog);
  auto& progress = state_.progress;
  state_.status.validation_is_due = val_schedule_->was_due(progress.batches - 1, num_batches_);
  progress.phase = FitPhase::kValidation;
  validate_if_due();
  progress.phase = FitPhase::kBatches;
}

void FitLoop::validate_if_due() {
  if (state_.data.val.empty()) return;
  const bool was_begun = state_.progress.validation != EvaluationProgress{};
  const bool ends_run = val_schedule_->in_epoch() && stop_honoured();
  if (!was_begun && !state_.status.validation_is_due && !ends_run) return;
  if (!was_begun) {
    TrainContext context(state_);
    if (!is_inside_window(state_.progress)) state_.setup.module->on_validation_model_zero_grad(context);
    reload_validation_data(state_.setup, state_.data, state_.progress);
    state_.log.train.sync_step_values(
        state_.setup.communicator());  // for those that monitor, before it logs its own
  }
  const auto limits = evaluation_limits(state_.setup, state_.data.val, Stage::kValidate);
  run_evaluation_loop(state_, state_.data.val, Stage::kFit, limits, state_.progress.validation,
                      [this] { interruption_.heed(); });
  val_schedule_->restart();
  stop_vote_.take();  // by what was measured
}

}  // namespace lockstep::detail
