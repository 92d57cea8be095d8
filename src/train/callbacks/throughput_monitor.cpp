#include <lockstep/train/callbacks/throughput_monitor.h>

#include <utility>

#include <lockstep/loggers/logger.h>
#include <lockstep/train/module.h>

#include "train/callbacks/log_cadence.h"

namespace lockstep {
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

// Null where nothing is measured.
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
  if (found != nullptr && detail::is_log_batch(step)) log(step, stage, found->batches_ever);
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

// Only a window that is complete holds its share of the optimizer's step.
void ThroughputMonitor::on_train_batch_end(StepContext& step, const TrainOutput&) {
  const bool stepped = std::exchange(last_global_step_, step.global_step()) != step.global_step();
  if (update(step, kTrain) != nullptr && stepped && detail::is_log_step(step))
    log(step, kTrain, step.batches_that_stepped());
}

void ThroughputMonitor::on_validation_start(TrainContext& context) { start(context, kValidate); }
void ThroughputMonitor::on_validation_batch_end(StepContext& step) { update_and_log(step, kValidate); }

// The clock of training stands still since its last batch.
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

}  // namespace lockstep
