// DeviceStatsMonitor: writes to the loggers how busy the machine is.
#pragma once

#include <optional>
#include <string_view>

#include <lockstep/device/cpu_stats.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

/// Names, meaning and defaults are Lightning's.
struct DeviceStatsMonitorOptions {
  /// Whether to log what CpuStats reads. Default: where training runs on the CPU.
  std::optional<bool> cpu_stats = {};
};

/// Before and after each batch that is logged, of training, validation and test, gives the loggers
/// `DeviceStatsMonitor.on_train_batch_start/cpu_percent` and so on, of rank 0's machine, and on a device its
/// memory_stats(): `DeviceStatsMonitor.on_train_batch_start/allocated_bytes.all.current` and so on.
class LOCKSTEP_API DeviceStatsMonitor final : public Callback {
 public:
  explicit DeviceStatsMonitor(DeviceStatsMonitorOptions options = {}) : options_(options) {}

  /// @throws ConfigError where a fit has no logger
  void setup(TrainContext& context) override;
  void on_train_batch_start(StepContext& step) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_validation_batch_start(StepContext& step) override;
  void on_validation_batch_end(StepContext& step) override;
  void on_test_batch_start(StepContext& step) override;
  void on_test_batch_end(StepContext& step) override;

 private:
  void log(const StepContext& step, std::string_view hook);

  DeviceStatsMonitorOptions options_;
  CpuStats cpu_;
};

}  // namespace lockstep
