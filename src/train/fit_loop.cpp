#include "train/fit_loop.h"

#include <algorithm>
#include <cmath>

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/torch.h>

#include "strategy/scaled_step.h"
#include "train/data_place.h"
#include "train/evaluation_loop.h"
#include "train/fit_checkpoint.h"
#include "train/log_scope.h"

namespace lockstep::detail {

void FitLoop::run(const std::function<void()>& on_begin) {
  num_batches_ = num_training_batches(state_);
  is_stream_ = state_.train_loader->num_batches(state_.shard(/*pad=*/true)) == kUnknownLength;
  state_.progress.num_training_batches = num_batches_;
  val_schedule_.emplace(state_, num_batches_);
  if (num_batches_ == 0 || done()) return on_begin();

  TrainContext context(state_);
  {
    LogScopeGuard scope(state_, state_.train_log, kEpochLog);
    state_.hooks.call(hook::on_train_start, context);
  }
  on_begin();
  while (!done()) run_epoch();
  state_.hooks.call(hook::on_train_end, context);
}

bool FitLoop::steps_reached() const {
  return state_.options.max_steps >= 0 && state_.progress.global_step >= state_.options.max_steps;
}

bool FitLoop::stop_honoured() const {
  const bool stop = state_.communicator().size() == 1 ? state_.should_stop : state_.stop_agreed;
  return stop && state_.progress.epoch >= state_.options.min_epochs &&
         state_.progress.global_step >= state_.options.min_steps;
}

bool FitLoop::is_over() const { return steps_reached() || stop_honoured(); }

bool FitLoop::done() const {
  const auto max_epochs = *state_.options.max_epochs;
  return is_over() || (max_epochs >= 0 && state_.progress.epoch >= max_epochs);
}

FitLoop::Window FitLoop::window_of(std::int64_t batch_idx) const {
  const std::int64_t length = state_.window_length();
  const std::int64_t start = batch_idx - batch_idx % length;
  const std::int64_t end = std::min(start + length, num_batches_);
  // The windows of a stream are all divided alike: where the last one ends is known too late.
  const bool true_mean = state_.options.partial_window == PartialWindow::kAccumulated && !is_stream_;
  return {.first = batch_idx == start,
          .last = batch_idx + 1 == end,
          .divisor = static_cast<double>(true_mean ? end - start : length)};
}

// An epoch that was begun in another process goes on where its phase says.
void FitLoop::run_epoch() {
  auto& progress = state_.progress;
  if (is_stream_) end_epoch_at(num_training_batches(state_));
  if (progress.phase == FitPhase::kEpochStart) start_epoch();
  if (progress.phase < FitPhase::kEpochEnd) {
    run_batches();
    const bool is_cut = progress.batches < num_batches_ && is_over();
    if (is_cut) state_.on_interruption();
    is_cut_ = is_cut;
    call_epoch_end(/*monitors=*/false, FitPhase::kEpochEnd);
  }
  if (progress.phase == FitPhase::kEpochEnd) {
    // Those that monitor see what the epoch's metrics have come to.
    state_.write_metrics(state_.train_log.finish_epoch(state_.communicator()),
                         std::max<std::int64_t>(0, progress.batches_that_stepped - 1));
    call_epoch_end(/*monitors=*/true, FitPhase::kEpochLogged);
  }
  finish_epoch();
}

// A checkpoint that is taken in a hook says that the hook has been called.
void FitLoop::start_epoch() {
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
    finish_batch(progress.batches - 1);
  }
  AnyBatch batch;
  while (!is_over() && progress.batches < num_batches_) {
    if (!measure_.next(*stream, batch)) return end_epoch_at(progress.batches);
    if (stream->is_last()) end_epoch_at(progress.batches + 1);
    run_batch(batch, progress.batches);
    finish_batch(progress.batches - 1);
  }
}

// A stream has told how long it is.
void FitLoop::end_epoch_at(std::int64_t batches) {
  num_batches_ = batches;
  state_.progress.num_training_batches = batches;
}

void FitLoop::finish_epoch() {
  TrainContext context(state_);
  if (!is_cut_) advance_schedule(context, Interval::kEpoch, /*watching=*/true, state_.progress.epoch);
  for (const auto& logger : state_.loggers) logger->flush();
  agree_on_stop();
  ++state_.progress.epoch;
  state_.progress.batches_before += state_.progress.batches;
  state_.progress.batches = 0;
  state_.progress.phase = FitPhase::kEpochStart;
}

void FitLoop::run_batch(const AnyBatch& batch, std::int64_t batch_idx) {
  LogScopeGuard scope(state_, state_.train_log, kTrainStepLog);
  state_.train_log.set_batch_size(batch.size());
  StepContext step(state_, batch_idx, batch.size());
  const auto window = window_of(batch_idx);
  state_.progress.phase = FitPhase::kInBatch;

  inject(state_.options.run.fault, step.global_rank(), step.global_step());
  state_.hooks.call(hook::on_train_batch_start, step);
  const auto loss = training_step(batch, step);
  check_loss(loss, step);
  const double loss_value = LogValue(loss).value();
  if (state_.options.detect_anomaly) check_finite(loss_value, step);
  backward(loss, window, step);
  if (window.last) optimizer_step(step);
  if (window.last) advance_schedule(step, Interval::kStep, /*watching=*/false, batch_idx);
  if (batch_idx + 1 == num_batches_) {
    advance_schedule(step, Interval::kEpoch, /*watching=*/false, state_.progress.epoch);
  }
  state_.validation_is_due = val_schedule_->is_due(batch_idx, num_batches_);
  state_.progress.samples += batch.size() * step.world_size();
  ++state_.progress.batches;
  state_.progress.phase = FitPhase::kBatchEnd;
  state_.hooks.call(hook::on_train_batch_end, step, TrainOutput{.loss = loss_value});
}

// What follows on_train_batch_end.
void FitLoop::finish_batch(std::int64_t batch_idx) {
  auto& progress = state_.progress;
  const bool stepped = window_of(batch_idx).last;
  LogScopeGuard scope(state_, state_.train_log, kTrainStepLog);
  notice_failed_save(state_);
  if (progress.phase == FitPhase::kBatchEnd) {
    if (stepped) write_step_row();
    progress.validation = {};
    progress.phase = FitPhase::kValidation;
  }
  validate_if_due();
  // Schedules that watch a metric come after the validation that measures it.
  TrainContext context(state_);
  if (stepped) advance_schedule(context, Interval::kStep, /*watching=*/true, batch_idx);
  if (stepped) ++progress.batches_that_stepped;
  progress.phase = FitPhase::kBatches;
}

void FitLoop::write_step_row() {
  const auto stepped = state_.progress.batches_that_stepped;
  const int every = state_.options.log_every_n_steps;
  if (every <= 0 || (stepped + 1) % every != 0) return;
  state_.write_metrics(state_.train_log.synced_step_row(state_.communicator()), stepped);
  agree_on_stop();
}

at::Tensor FitLoop::training_step(const AnyBatch& batch, StepContext& step) {
  const auto scope = state_.precision->forward_scope();
  const auto measured = measure_.step();
  return state_.module->any_training_step(batch, step);
}

void FitLoop::backward(at::Tensor loss, const Window& window, StepContext& step) {
  if (window.first) {
    state_.hooks.call(hook::on_before_zero_grad, step);
    state_.module->optimizer_zero_grad(step);
  }
  if (window.divisor != 1) loss = loss / window.divisor;
  loss = scaled_loss(*state_.precision, loss);
  state_.hooks.call(hook::on_before_backward, step, loss);
  torch::nn::Module* const module = state_.module.get();
  {
    const auto measured = measure_.backward();
    state_.strategy->backward(loss, {&module, window.last ? 1U : 0U});
  }
  state_.hooks.call(hook::on_after_backward, step);
}

void FitLoop::optimizer_step(StepContext& step) {
  unscale_gradients(*state_.strategy, *state_.precision, *state_.optimizer);
  state_.hooks.call(hook::on_before_optimizer_step, step);
  state_.module->configure_gradient_clipping(step, {.value = state_.options.gradient_clip_val.value_or(0),
                                                    .algorithm = state_.options.gradient_clip_algorithm});
  {
    const auto measured = measure_.optimizer_step();
    step_optimizer(*state_.strategy, *state_.precision, *state_.optimizer);
  }
  adapt_scale(*state_.precision);
  ++state_.progress.global_step;
  rank_status().optimizer_step.store(static_cast<std::uint64_t>(state_.progress.global_step),
                                     std::memory_order_relaxed);
}

void FitLoop::advance_schedule(TrainContext& context, Interval interval, bool watching,
                               std::int64_t counter) {
  if (!state_.scheduler || state_.scheduler_config->interval != interval ||
      state_.scheduler->needs_metric() != watching ||
      (counter + 1) % state_.scheduler_config->frequency != 0) {
    return;
  }
  state_.module->lr_scheduler_step(context, *state_.scheduler,
                                   watching ? std::optional(monitored()) : std::nullopt);
}

void FitLoop::agree_on_stop() {
  if (state_.communicator().size() == 1) return;
  const auto votes = torch::full({1}, state_.should_stop ? 1 : 0, torch::kInt);
  state_.communicator().all_reduce(votes, ReduceOp::kMax);
  state_.stop_agreed = votes.item<int>() != 0;
}

// Ranks may have measured different values; they must go by one.
double FitLoop::monitored() const {
  const auto& name = state_.scheduler_config->monitor;
  const auto metric = state_.board.callback.find(name);
  if (metric != state_.board.callback.end()) {
    const auto value = torch::full({1}, metric->second, torch::kDouble);
    state_.communicator().broadcast(value, 0);
    return value.item<double>();
  }
  std::string known;
  for (const auto& [other, value] : state_.board.callback) known += (known.empty() ? "" : ", ") + other;
  throw ConfigError("train", {.what = "lr_scheduler: the monitored metric \"" + name + "\" was not logged",
                              .expected = known.empty() ? "a metric that was logged" : "one of " + known});
}

void FitLoop::validate_if_due() {
  if (!state_.val_loader) return;
  const bool was_begun = state_.progress.validation != EvaluationProgress{};
  const bool ends_run = val_schedule_->in_epoch() && stop_honoured();
  if (!was_begun && !state_.validation_is_due && !ends_run) return;
  const auto batches = evaluation_batches(state_, *state_.val_loader, Stage::kValidate);
  run_evaluation_loop(state_, *state_.val_loader, Stage::kFit, batches, state_.progress.validation);
  val_schedule_->restart();
}

void FitLoop::check_loss(const at::Tensor& loss, const StepContext& step) {
  const bool usable = loss.defined() && loss.numel() == 1 && loss.requires_grad();
  if (usable) return;
  const auto got = !loss.defined()     ? std::string("an undefined tensor")
                   : loss.numel() != 1 ? std::to_string(loss.numel()) + " elements"
                                       : std::string("a tensor that no parameter had a part in");
  throw ConfigError("train", {.what = "training_step gave no loss that backward() can start from",
                              .expected = "a tensor of one element that requires a gradient",
                              .got = got,
                              .where = "rank " + std::to_string(step.global_rank()) + ", epoch " +
                                       std::to_string(step.current_epoch()) + ", batch " +
                                       std::to_string(step.batch_idx())});
}

void FitLoop::check_finite(double loss, const StepContext& step) const {
  if (std::isfinite(loss)) return;
  throw Error("train",
              {.what = "detect_anomaly: the loss is not finite",
               .expected = "a finite number",
               .got = std::to_string(loss),
               .where = "rank " + std::to_string(step.global_rank()) + ", epoch " +
                        std::to_string(step.current_epoch()) + ", batch " + std::to_string(step.batch_idx()) +
                        ", step " + std::to_string(step.global_step()),
               .hint = "look at this batch's data and at the learning rate"});
}

}  // namespace lockstep::detail
