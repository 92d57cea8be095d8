// Implements the contexts: what hooks see of the state of a Trainer, and what they ask of it.
#include <algorithm>
#include <typeinfo>

#include <c10/util/Type.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/data/any_loader.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/train_context.h>

#include "train/checkpoints/fit_checkpoint.h"
#include "train/data/data_place.h"
#include "train/logging/terminal.h"
#include "train/loops/trainer_state.h"

namespace lockstep {

Hooks::~Hooks() = default;
Callback::~Callback() = default;
std::string Callback::state_key() const { return c10::demangle(typeid(*this).name()); }

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::kFit:
      return "fit";
    case Stage::kSanityCheck:
      return "sanity_check";
    case Stage::kValidate:
      return "validate";
    case Stage::kTest:
      return "test";
    case Stage::kPredict:
      return "predict";
  }
  return "unknown";
}

LogValue::LogValue(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() != 1) {
    throw ConfigError("train", {.what = "log(): the value is not a single number",
                                .expected = "a tensor of one element",
                                .got = tensor.defined() ? std::to_string(tensor.numel()) + " elements"
                                                        : "an undefined tensor",
                                .where = "",
                                .hint = "log its mean(), or its parts under names of their own"});
  }
  value_ = Scalar(tensor);
}

bool TrainContext::is_global_zero() const { return state_->setup.is_global_zero(); }
int TrainContext::global_rank() const { return state_->setup.environment->global_rank(); }
at::Device TrainContext::device() const { return state_->setup.strategy->root_device(); }
int TrainContext::world_size() const { return state_->setup.environment->world_size(); }
Stage TrainContext::stage() const { return state_->setup.stage; }
Strategy& TrainContext::strategy() const { return *state_->setup.strategy; }
AnyModule& TrainContext::module() const { return *state_->setup.module; }

Optimizer& TrainContext::optimizer() const {
  if (stepping_ != nullptr) return *stepping_;
  const auto& optimizers = state_->setup.optimizers;
  if (optimizers.size() == 1) return *optimizers.front().optimizer;
  if (optimizers.size() > 1) {
    throw ConfigError("train", {.what = "optimizer() of " + std::to_string(optimizers.size()) + " optimizers",
                                .expected = "the hook on_before_optimizer_step, or optimizers()[i]"});
  }
  throw ConfigError("train", {.what = "there is no optimizer",
                              .expected = "a hook of fit, after on_fit_start",
                              .got = "stage " + std::string(stage_name(stage()))});
}

std::span<const RunOptimizer> TrainContext::optimizers() const { return state_->setup.optimizers; }

std::int64_t TrainContext::current_epoch() const { return state_->progress.epoch; }
std::int64_t TrainContext::global_step() const { return state_->progress.global_step; }
std::int64_t TrainContext::open_micro_batches() const { return state_->progress.window.done; }
std::int64_t TrainContext::samples_seen() const { return state_->progress.samples; }
std::int64_t TrainContext::num_training_batches() const { return state_->progress.num_training_batches; }

std::optional<std::int64_t> TrainContext::estimated_stepping_batches() const {
  return detail::estimated_steps(state_->setup, state_->data, state_->progress);
}

std::int64_t TrainContext::num_evaluation_batches() const { return state_->status.num_evaluation_batches; }
const std::filesystem::path& TrainContext::run_dir() const { return state_->setup.run_dir; }
std::span<const std::shared_ptr<Callback>> TrainContext::callbacks() const { return state_->setup.callbacks; }
const TrainerOptions& TrainContext::options() const { return state_->setup.options; }
std::span<const std::shared_ptr<Logger>> TrainContext::loggers() const { return state_->log.loggers; }
const std::optional<LRScheduler>& TrainContext::lr_scheduler() const {
  static const std::optional<LRScheduler> none;
  return state_->setup.optimizers.empty() ? none : state_->setup.optimizers.front().lr_scheduler;
}
std::int64_t TrainContext::batches_that_stepped() const { return state_->progress.batches_that_stepped; }
bool TrainContext::has_validation() const { return !state_->data.val.empty(); }
bool TrainContext::will_validate() const { return state_->status.validation_is_due; }

void TrainContext::log(std::string_view name, const LogValue& value, const LogOptions& options) {
  if (state_->setup.options.barebones) return;
  state_->log.active->log(name, value.value(), options);
}

void TrainContext::log(std::string_view name, metrics::Metric& metric, const LogOptions& options) {
  if (state_->setup.options.barebones) return;
  state_->log.active->log(name, metric, options);
}

void TrainContext::sync_step_metrics() { state_->log.train.sync_step_values(state_->setup.communicator()); }

const Metrics& TrainContext::callback_metrics() const { return state_->log.board.callback.read(); }
void TrainContext::set_callback_metric(const std::string& name, double value) {
  state_->log.board.callback.set(name, value);
}
Measurement TrainContext::measured(std::string_view name) const {
  const auto found = state_->log.board.measured.find(name);
  return found == state_->log.board.measured.end() ? Measurement() : found->second;
}

std::int64_t TrainContext::num_validations() const { return state_->log.board.num_validations; }
const Metrics& TrainContext::progress_bar_metrics() const { return state_->log.board.progress_bar.read(); }

namespace {

void refuse_after_failure(const detail::CheckpointSession& checkpoints) {
  if (checkpoints.failure == nullptr) return;
  throw ConfigError("train", {.what = "a checkpoint cannot be taken here",
                              .expected = "a hook of fit between batches",
                              .got = "on_exception, which other ranks may not be in",
                              .hint = "save_after_failure() saves what there is"});
}

}  // namespace

void TrainContext::save_checkpoint(const std::filesystem::path& folder, const SaveRequest& request) {
  refuse_after_failure(state_->checkpoints);
  detail::save_after_hook(state_->fit, folder, request);
}

void TrainContext::capture_checkpoint(CheckpointCapture capture) {
  refuse_after_failure(state_->checkpoints);
  detail::capture_after_hook(state_->fit, std::move(capture));
}

bool TrainContext::will_save(const std::filesystem::path& folder) const {
  return std::ranges::count(state_->checkpoints.promised, folder) > 0;
}

void TrainContext::set_accumulate_grad_batches(const AccumulationSchedule& schedule) {
  const bool is_between_epochs = state_->progress.phase == detail::FitPhase::kEpochStart;
  if (is_between_epochs) state_->setup.options.accumulate_grad_batches = schedule;
  if (!is_between_epochs) state_->setup.accumulation.next = schedule;
}

void TrainContext::set_lr_scheduler(const LRScheduler& scheduler) {
  auto made = std::make_unique<Scheduler>(scheduler.scheduler, optimizer());
  auto& own = state_->setup.optimizers.front();
  own.lr_scheduler = scheduler;
  own.scheduler = std::move(made);
}

void TrainContext::prepare_save_after_failure() {
  if (state_->checkpoints.failure_barrier || world_size() == 1) return;
  state_->checkpoints.failure_barrier = std::make_unique<detail::FailureBarrier>(
      state_->setup.communicator(), state_->setup.environment->main_address());
}

SavedAfterFailure TrainContext::save_after_failure(const std::filesystem::path& folder,
                                                   const SaveRequest& request,
                                                   std::chrono::milliseconds deadline) {
  return detail::save_after_failure(state_->fit, folder, request, deadline);
}

void TrainContext::print(std::string_view text) const {
  if (is_global_zero()) detail::print_line(text);
}

void TrainContext::stop() { state_->stop.requested = state_->stop.saved = true; }
void TrainContext::stop_this_run() { state_->stop.requested = state_->stop.this_run_only = true; }
bool TrainContext::should_stop() const { return state_->stop.is_wanted(); }
void TrainContext::wish_to_stop(const Callback& callback, bool wishes) {
  if (wishes) state_->stop.callbacks.insert(&callback);
  if (!wishes) state_->stop.callbacks.erase(&callback);
}

void StepContext::skip_epoch() {
  if (state_->status.skip_request == detail::SkipRequest::kRefused) {
    throw ConfigError(
        "train", {.what = "skip_epoch() is not possible here", .expected = "the hook on_train_batch_start"});
  }
  state_->status.skip_request = detail::SkipRequest::kMade;
}
std::int64_t StepContext::batch_size() const { return batch_->size(); }

double grad_norm(StepContext& step, double norm_type) {
  return step.strategy().grad_norm(step.optimizer(), norm_type);
}

}  // namespace lockstep
