#include "train/callbacks/deepspeed_reports.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/process.h>
#include <lockstep/loggers/tensorboard_logger.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

#include "base/format.h"
#include "loggers/csv_monitor.h"
#include "train/callbacks/resident_memory.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kFirstMeasuredStep = 2;  // DeepSpeed's start_step

double milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// A list as Python prints it.
template <class Value>
std::string of_groups(const Optimizer& optimizer, const Value& value) {
  std::vector<std::string> texts;
  for (const auto& group : optimizer.groups()) texts.push_back(value(group));
  return "[" + lockstep::joined(texts) + "]";
}

std::string momentum_text(const Optimizer::Group& group) {
  if (!group.betas) return number_text(group.momentum.value_or(0));
  return "[" + number_text(group.betas->front()) + ", " + number_text(group.betas->back()) + "]";
}

// Who counts operations wants to know what they took.
bool shows_times(const DeepSpeedConfig& config) {
  return config.wall_clock_breakdown || config.flops_profiler.enabled;
}

}  // namespace

bool DeepSpeedReports::are_wanted(const DeepSpeedConfig& config) {
  return config.steps_per_print || shows_times(config) || config.tensorboard.enabled ||
         config.csv_monitor.enabled || config.dump_state;
}

DeepSpeedReports::DeepSpeedReports(const DeepSpeedConfig& config, std::function<const GradScaler*()> scaler)
    : config_(config), scaler_(std::move(scaler)), flops_(config.flops_profiler) {
  const auto& tensorboard = config.tensorboard;
  // The folder of the job itself, no version below it.
  if (tensorboard.enabled)
    monitors_.push_back(std::make_unique<TensorBoardLogger>(TensorBoardOptions{
        .save_dir = tensorboard.output_path, .name = tensorboard.job_name, .version = "."}));
  const auto& csv = config.csv_monitor;
  if (csv.enabled) monitors_.push_back(std::make_unique<CsvMonitor>(csv.output_path / csv.job_name));
}

void DeepSpeedReports::on_train_start(TrainContext& context) {
  last_step_ = context.global_step();
  flops_.begin_run(last_step_);
  if (config_.dump_state) context.print("DeepSpeedEngine configuration:\n" + to_json(config_));
}

void DeepSpeedReports::on_train_batch_start(StepContext& step) {
  batch_size_ = std::max(batch_size_, step.batch_size());
  flops_.begin(step);
  clock_.enter(StepPhase::kForward);
}
void DeepSpeedReports::on_before_backward(StepContext&, const at::Tensor&) {
  clock_.enter(StepPhase::kBackward);
  flops_.end_forward();
}
void DeepSpeedReports::on_after_backward(StepContext&) { clock_.enter(StepPhase::kForward); }
void DeepSpeedReports::on_before_optimizer_step(StepContext&) { clock_.enter(StepPhase::kStep); }

void DeepSpeedReports::on_train_batch_end(StepContext& step, const TrainOutput&) {
  clock_.leave();
  const auto micro = clock_.take();
  global_ += micro;
  throughput_.current += micro.sum();
  flops_.end(step, micro);
  if (shows_times(config_)) print_times(step, micro, "_microstep");
  const auto steps_before = std::exchange(last_step_, step.global_step());
  if (steps_before != step.global_step()) end_step(step, steps_before);
}

void DeepSpeedReports::end_step(StepContext& step, std::int64_t steps_before) {
  if (++throughput_.steps > kFirstMeasuredStep) throughput_.total += throughput_.current;
  // A batch of manual optimisation may do several.
  const auto every = config_.steps_per_print.value_or(0);
  const bool is_due = every > 0 && step.global_step() / every > steps_before / every;
  if (is_due) print_progress(step);
  if (is_due && throughput_.total.count() > 0 && config_.timers.throughput.enabled) print_throughput(step);
  if (shows_times(config_)) print_times(step, global_, "");
  if (!monitors_.empty()) write_metrics(step);
  throughput_.current = {};
  global_ = {};
}

void DeepSpeedReports::print_progress(const StepContext& step) const {
  const auto* const scaler = scaler_();
  const auto& optimizer = *step.optimizers().front().optimizer;
  step.print("[Rank 0] step=" + std::to_string(step.global_step()) +
             ", skipped=" + std::to_string(scaler == nullptr ? 0 : scaler->total_skipped_steps()) +
             ", lr=" + of_groups(optimizer, [](const auto& group) { return number_text(group.lr); }) +
             ", mom=" + of_groups(optimizer, &momentum_text));
}

void DeepSpeedReports::print_throughput(const StepContext& step) const {
  const auto samples = static_cast<double>(samples_of_step(step));
  const auto per_second = [&](double steps, Clock::duration time) {
    return number_text(samples * steps * 1000 / milliseconds(time));
  };
  const auto measured = static_cast<double>(throughput_.steps - kFirstMeasuredStep);
  step.print("epoch=" + std::to_string(step.current_epoch()) + "/micro_step=" +
             std::to_string(step.batch_idx() + 1) + "/global_step=" + std::to_string(step.global_step()) +
             ", RunningAvgSamplesPerSec=" + per_second(measured, throughput_.total) + ", CurrSamplesPerSec=" +
             per_second(1, throughput_.current) + ", MemAllocated=" + gigabytes(resident_bytes()) +
             "GB, MaxMemAllocated=" + gigabytes(peak_rss_bytes()) + "GB");
}

void DeepSpeedReports::print_times(const TrainContext& context, const Times& times,
                                   const char* suffix) const {
  constexpr const char* kNames[] = {"fwd", "bwd", "step"};
  std::string line = "[Rank 0] time (ms)";
  for (std::size_t phase = 0; phase < times.size(); ++phase) {
    line += std::string(" | ") + kNames[phase] + suffix + ": " + two_digits(milliseconds(times[phase]));
  }
  context.print(line);
}

void DeepSpeedReports::write_metrics(const StepContext& step) {
  std::vector<Metric> metrics{{"Train/Samples/lr", step.optimizers().front().optimizer->groups().front().lr}};
  if (const auto* const scaler = scaler_(); scaler != nullptr && config_.fp16.enabled.value)
    metrics.emplace_back("Train/Samples/loss_scale", scaler->get_scale());
  if (shows_times(config_)) {
    constexpr const char* kNames[] = {"forward", "backward", "step"};
    for (std::size_t phase = 0; phase < global_.size(); ++phase)
      metrics.emplace_back(std::string("Train/Samples/elapsed_time_ms_") + kNames[phase],
                           milliseconds(global_[phase]));
  }
  const bool is_constant = step.options().accumulate_grad_batches.is_constant();
  const auto samples = is_constant ? step.global_step() * samples_of_step(step) : step.samples_seen();
  for (const auto& monitor : monitors_) monitor->log_metrics(metrics, step.current_epoch(), samples);
}

std::int64_t DeepSpeedReports::samples_of_step(const StepContext& step) const {
  return batch_size_ * step.world_size() * step.options().accumulate_grad_batches.at(step.current_epoch());
}

void DeepSpeedReports::finalize(const char* status) {
  flops_.stop();
  for (const auto& monitor : monitors_) monitor->finalize(status);
}

void DeepSpeedReports::on_train_end(TrainContext&) { finalize("success"); }
void DeepSpeedReports::on_exception(TrainContext&, const std::exception&) { finalize("failed"); }

}  // namespace lockstep::detail
