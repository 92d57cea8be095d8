// Callbacks that observe training: learning rates, device statistics, throughput, and spikes of the loss.
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/callbacks/monitors.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep {
namespace {

// Whether a row is due for the current batch, by log_every_n_steps or the end of the run. Batches that
// stepped are counted, as for the loggers' steps.
bool is_log_step(const TrainContext& context) {
  const int every = context.options().log_every_n_steps;
  if (every <= 0) return false;
  return (context.batches_that_stepped() + 1) % every == 0 || context.should_stop();
}

// The same in evaluation, which counts its own batches unless it is a part of fit.
bool is_log_batch(const StepContext& step) {
  if (step.stage() == Stage::kFit) return is_log_step(step);
  const int every = step.options().log_every_n_steps;
  return every > 0 && ((step.batch_idx() + 1) % every == 0 || step.should_stop());
}

}  // namespace

void LearningRateMonitor::on_train_start(TrainContext& context) {
  if (context.options().logger.empty() && !context.options().fast_dev_run) {
    throw ConfigError("train", {.what = "LearningRateMonitor in a Trainer without a logger",
                                .expected = "a logger",
                                .got = "logger = false"});
  }
  const bool is_scheduled = std::ranges::any_of(
      context.optimizers(), [](const auto& optimizer) { return optimizer.lr_scheduler.has_value(); });
  if (!is_scheduled && context.is_global_zero())
    log_warning("LearningRateMonitor: there is no learning-rate schedule; the rate is constant");
}

// Without logging_interval each rate is logged as often as its schedule changes it; without a schedule hooks
// may change it at any time.
bool LearningRateMonitor::logs_at(const RunOptimizer& optimizer, Interval interval) const {
  if (options_.logging_interval) return *options_.logging_interval == interval;
  return !optimizer.lr_scheduler || optimizer.lr_scheduler->interval == interval;
}

void LearningRateMonitor::on_train_batch_start(StepContext& step) {
  const int every = step.options().log_every_n_steps;
  if (every <= 0) return;
  const bool opens_window = step.open_micro_batches() == 0;
  if (opens_window && (step.batches_that_stepped() + 1) % every == 0) log(step, Interval::kStep);
}

void LearningRateMonitor::on_train_epoch_start(TrainContext& context) { log(context, Interval::kEpoch); }

// Schedules without a name are told apart by a number behind the class of their optimizer.
std::vector<std::string> LearningRateMonitor::names_of(std::span<const RunOptimizer> optimizers) {
  std::map<std::string_view, int> seen;
  std::vector<std::string> names;
  for (const auto& [module, optimizer, config, scheduler] : optimizers) {
    if (config && !config->name.empty()) {
      names.push_back(config->name);
      continue;
    }
    const int number = seen[optimizer->name()]++;
    names.push_back("lr-" + std::string(optimizer->name()) +
                    (number == 0 ? "" : "-" + std::to_string(number)));
  }
  return names;
}

void LearningRateMonitor::log(TrainContext& context, Interval interval) const {
  const auto optimizers = context.optimizers();
  const auto names = names_of(optimizers);
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    if (logs_at(optimizers[i], interval)) add_groups(*optimizers[i].optimizer, names[i], metrics);
  }
  if (metrics.empty()) return;
  for (const auto& [name, rate] : metrics) context.set_callback_metric(name, rate);
  for (const auto& logger : context.loggers())
    logger->log_metrics(metrics, context.current_epoch(), context.batches_that_stepped());
}

void LearningRateMonitor::add_groups(const Optimizer& optimizer, const std::string& base,
                                     std::vector<Metric>& metrics) const {
  const bool one = optimizer.groups().size() == 1;
  for (std::size_t i = 0; i < optimizer.groups().size(); ++i) {
    const auto& group = optimizer.groups()[i];
    const auto name = options_.log_key_prefix + base + (one ? "" : "/pg" + std::to_string(i + 1));
    metrics.emplace_back(name, group.lr);
    if (options_.log_momentum)
      metrics.emplace_back(name + "-momentum",
                           group.betas ? group.betas->front() : group.momentum.value_or(0));
    if (options_.log_weight_decay) metrics.emplace_back(name + "-weight_decay", group.weight_decay);
  }
}

void DeviceStatsMonitor::setup(TrainContext& context) {
  const auto& trainer = context.options();
  if (context.stage() != Stage::kFit || !trainer.logger.empty() || trainer.fast_dev_run) return;
  throw ConfigError("train", {.what = "DeviceStatsMonitor in a Trainer without a logger",
                              .expected = "a logger",
                              .got = "logger = false"});
}

void DeviceStatsMonitor::on_train_batch_start(StepContext& step) { log(step, "on_train_batch_start"); }
void DeviceStatsMonitor::on_train_batch_end(StepContext& step, const TrainOutput&) {
  log(step, "on_train_batch_end");
}
void DeviceStatsMonitor::on_validation_batch_start(StepContext& step) {
  log(step, "on_validation_batch_start");
}
void DeviceStatsMonitor::on_validation_batch_end(StepContext& step) { log(step, "on_validation_batch_end"); }
void DeviceStatsMonitor::on_test_batch_start(StepContext& step) { log(step, "on_test_batch_start"); }
void DeviceStatsMonitor::on_test_batch_end(StepContext& step) { log(step, "on_test_batch_end"); }

void DeviceStatsMonitor::log(const StepContext& step, std::string_view hook) {
  const auto loggers = step.loggers();
  if (loggers.empty() || !is_log_batch(step)) return;
  auto metrics = memory_stats(step.device());
  if (options_.cpu_stats.value_or(step.device().is_cpu())) {
    const auto cpu = cpu_.read();
    metrics.insert(metrics.end(), cpu.begin(), cpu.end());
  }
  if (metrics.empty()) return;
  for (auto& [name, value] : metrics) name = "DeviceStatsMonitor." + std::string(hook) + "/" + name;
  for (const auto& logger : loggers)
    logger->log_metrics(metrics, step.current_epoch(), step.batches_that_stepped());
}

namespace {

constexpr const char* kTrain = "train";
constexpr const char* kValidate = "validate";
constexpr const char* kTest = "test";
constexpr const char* kPredict = "predict";

}  // namespace

FlopsPerBatch::~FlopsPerBatch() = default;

struct ThroughputMonitor::Meter {
  Throughput throughput;
  Clock::time_point start = Clock::now();
  ThroughputUpdate totals = {};
  std::int64_t batches_ever = 0;  // also of earlier passes: the loggers' x-axis

  void restart() {
    throughput.reset();
    totals = {};
    start = Clock::now();
  }
};

ThroughputMonitor::ThroughputMonitor(ThroughputMonitorOptions options) : options_(std::move(options)) {
  (void)Throughput({.window_size = options_.window_size});
}
ThroughputMonitor::~ThroughputMonitor() = default;

// Null in stages that are not measured.
ThroughputMonitor::Meter* ThroughputMonitor::meter(const TrainContext& context, const char* stage) {
  if (!context.is_global_zero() || context.stage() == Stage::kSanityCheck) return nullptr;
  auto& found = meters_[stage];
  if (!found)
    found.reset(new Meter{.throughput = Throughput({.available_flops = options_.available_flops,
                                                    .world_size = context.world_size(),
                                                    .window_size = options_.window_size,
                                                    .separator = options_.separator})});
  return found.get();
}

void ThroughputMonitor::start(const TrainContext& context, const char* stage) {
  if (auto* const found = meter(context, stage)) found->restart();
}

ThroughputMonitor::Meter* ThroughputMonitor::update(const StepContext& step, const char* stage) {
  auto* const found = meter(step, stage);
  const auto samples = options_.batch_size_fn ? options_.batch_size_fn(step.batch()) : step.batch_size();
  if (found == nullptr || samples == 0) return nullptr;
  auto& totals = found->totals;
  totals.time = Clock::now() - found->start;
  ++totals.batches;
  ++found->batches_ever;
  totals.samples += samples;
  if (options_.length_fn) totals.lengths = totals.lengths.value_or(0) + options_.length_fn(step.batch());
  if (const auto* module = dynamic_cast<const FlopsPerBatch*>(&step.module()))
    totals.flops = module->flops_per_batch();
  found->throughput.update(totals);
  return found;
}

void ThroughputMonitor::update_and_log(const StepContext& step, const char* stage) {
  const auto* const found = update(step, stage);
  if (found != nullptr && is_log_batch(step)) log(step, stage, found->batches_ever);
}

void ThroughputMonitor::log(const TrainContext& context, const char* stage, std::int64_t step) {
  std::vector<Metric> metrics;
  for (const auto& [name, value] : meters_.at(stage)->throughput.compute())
    metrics.emplace_back(stage + options_.separator + name, value);
  for (const auto& logger : context.loggers()) logger->log_metrics(metrics, context.current_epoch(), step);
}

void ThroughputMonitor::on_train_start(TrainContext& context) {
  start(context, kTrain);
  last_global_step_ = context.global_step();
}

// The time of an optimizer step counts only once its window is complete.
void ThroughputMonitor::on_train_batch_end(StepContext& step, const TrainOutput&) {
  const bool stepped = std::exchange(last_global_step_, step.global_step()) != step.global_step();
  if (update(step, kTrain) != nullptr && stepped && is_log_step(step))
    log(step, kTrain, step.batches_that_stepped());
}

void ThroughputMonitor::on_validation_start(TrainContext& context) { start(context, kValidate); }
void ThroughputMonitor::on_validation_batch_end(StepContext& step) { update_and_log(step, kValidate); }

// Validation does not count as time of training.
void ThroughputMonitor::on_validation_end(TrainContext& context) {
  auto* const training = context.stage() == Stage::kFit ? meter(context, kTrain) : nullptr;
  if (training == nullptr) return;
  training->start = Clock::now() - std::chrono::duration_cast<Clock::duration>(training->throughput.time());
}

void ThroughputMonitor::on_test_start(TrainContext& context) { start(context, kTest); }
void ThroughputMonitor::on_test_batch_end(StepContext& step) { update_and_log(step, kTest); }
void ThroughputMonitor::on_predict_start(TrainContext& context) { start(context, kPredict); }
void ThroughputMonitor::on_predict_batch_end(StepContext& step, const at::Tensor&) {
  update_and_log(step, kPredict);
}

SpikeDetection::SpikeDetection(SpikeDetectionOptions options)
    : options_(std::move(options)), detector_(options_) {}

// A new fit starts without losses; the state of a resumed one is loaded later.
void SpikeDetection::setup(TrainContext& context) {
  if (context.stage() != Stage::kFit) return;
  auto options = options_;
  if (options.exclude_batches_path.empty()) options.exclude_batches_path = context.run_dir();
  detector_ = SpikeDetector(options);
}

void SpikeDetection::on_train_batch_end(StepContext& step, const TrainOutput& output) {
  detector_.observe(output.loss, step.batch_idx(), step.strategy().communicator());
}

void describe(OptionVisitor& v, LearningRateMonitorOptions& o) {
  v.field("logging_interval", o.logging_interval,
          "Log each step or each epoch; null: as the schedule advances");
  v.field("log_momentum", o.log_momentum, "Log momentum, or beta1, too");
  v.field("log_weight_decay", o.log_weight_decay, "Log weight decay, too");
  v.field("log_key_prefix", o.log_key_prefix, "Text before each name");
}

void describe(OptionVisitor& v, DeviceStatsMonitorOptions& o) {
  v.field("cpu_stats", o.cpu_stats, "Log the load of the CPU; null: where training runs on it");
}

void describe(OptionVisitor& v, ThroughputMonitorOptions& o) {
  v.field("available_flops", o.available_flops, "Operations per second of a device, for mfu", more_than(0));
  v.field("window_size", o.window_size, "Batches that rates are measured over", at_least(1));
  v.field("separator", o.separator, "Text between the parts of a name");
}

}  // namespace lockstep
