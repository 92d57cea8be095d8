#include <lockstep/train/callbacks/device_stats_monitor.h>

#include <lockstep/base/error.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/train/trainer_options.h>

#include "train/callbacks/log_cadence.h"

namespace lockstep {

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
  if (loggers.empty() || !options_.cpu_stats.value_or(true) || !detail::is_log_batch(step)) return;
  auto metrics = cpu_.read();
  for (auto& [name, value] : metrics) name = "DeviceStatsMonitor." + std::string(hook) + "/" + name;
  for (const auto& logger : loggers)
    logger->log_metrics(metrics, step.current_epoch(), step.batches_that_stepped());
}

}  // namespace lockstep
