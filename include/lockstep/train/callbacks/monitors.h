// Callbacks that observe training: learning rates, device statistics, throughput, and spikes of the loss.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/option_visitor.h>
#include <lockstep/device/cpu_stats.h>
#include <lockstep/fabric/spike_detector.h>
#include <lockstep/fabric/throughput.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/optim/scheduler_options.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

/// Names, meaning and defaults are Lightning's.
struct LearningRateMonitorOptions {
  /// None: as schedules advance, or both without one.
  std::optional<EnumOption<Interval>> logging_interval = {};
  bool log_momentum = false;        ///< or beta1
  bool log_weight_decay = false;    ///< logs weight decay, too
  std::string log_key_prefix = {};  ///< before each name
};

LOCKSTEP_API void describe(OptionVisitor& visitor, LearningRateMonitorOptions& options);

/// Gives the loggers the learning rate of every group as `lr-AdamW`, or `lr-AdamW/pg1`, `lr-AdamW/pg2` where
/// there are several; of several optimizers of a class the second as `lr-AdamW-1`. A schedule's own name
/// stands in place of `lr-AdamW`. Steps are logged every log_every_n_steps. As in Lightning, they are among
/// the callback_metrics() too.
class LOCKSTEP_API LearningRateMonitor final : public Callback {
 public:
  explicit LearningRateMonitor(LearningRateMonitorOptions options = {}) : options_(std::move(options)) {}

  /// @throws ConfigError where the Trainer has no logger
  void on_train_start(TrainContext& context) override;
  void on_train_batch_start(StepContext& step) override;
  void on_train_epoch_start(TrainContext& context) override;

 private:
  bool logs_at(const RunOptimizer& optimizer, Interval interval) const;
  static std::vector<std::string> names_of(std::span<const RunOptimizer> optimizers);
  void log(TrainContext& context, Interval interval) const;
  void add_groups(const Optimizer& optimizer, const std::string& base, std::vector<Metric>& metrics) const;

  LearningRateMonitorOptions options_;
};

/// Names, meaning and defaults are Lightning's.
struct DeviceStatsMonitorOptions {
  /// Whether to log what CpuStats reads. Default: where training runs on the CPU.
  std::optional<bool> cpu_stats = {};
};

LOCKSTEP_API void describe(OptionVisitor& visitor, DeviceStatsMonitorOptions& options);

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

/// What a module may derive from, beside Module<Batch>, for ThroughputMonitor to tell the operations per
/// second: Lightning's attribute of this name.
class LOCKSTEP_API FlopsPerBatch {
 public:
  virtual ~FlopsPerBatch();
  /// Floating-point operations that one micro-batch takes on this rank.
  virtual double flops_per_batch() const = 0;
};

/// Names, meaning and defaults are Lightning's.
struct ThroughputMonitorOptions {
  /// Samples of a batch; default: as many as the loader says.
  std::function<std::int64_t(const AnyBatch&)> batch_size_fn = {};
  /// Items, such as tokens, in the samples of a batch; default: they are not counted.
  std::function<std::int64_t(const AnyBatch&)> length_fn = {};
  std::optional<double> available_flops = {};  ///< operations per second of a device, for "device/mfu"
  std::size_t window_size = 100;               ///< batches that rates are measured over
  std::string separator = "/";                 ///< between the parts of a name
};

/// All but the functions.
LOCKSTEP_API void describe(OptionVisitor& visitor, ThroughputMonitorOptions& options);

/// Logs what Throughput computes, as `train/device/samples_per_sec`, `validate/...`, `test/...` and
/// `predict/...`, every log_every_n_steps; in training when the optimizer has stepped. Training's time is
/// without that of validation. Rank 0 measures, for all.
class LOCKSTEP_API ThroughputMonitor final : public Callback {
 public:
  explicit ThroughputMonitor(ThroughputMonitorOptions options = {});
  ~ThroughputMonitor() override;

  void on_train_start(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_validation_start(TrainContext& context) override;
  void on_validation_batch_end(StepContext& step) override;
  void on_validation_end(TrainContext& context) override;
  void on_test_start(TrainContext& context) override;
  void on_test_batch_end(StepContext& step) override;
  void on_predict_start(TrainContext& context) override;
  void on_predict_batch_end(StepContext& step, const at::Tensor& prediction) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Meter;

  Meter* meter(const TrainContext& context, const char* stage);
  void start(const TrainContext& context, const char* stage);
  Meter* update(const StepContext& step, const char* stage);
  void update_and_log(const StepContext& step, const char* stage);
  void log(const TrainContext& context, const char* stage, std::int64_t step);

  ThroughputMonitorOptions options_;
  std::map<std::string, std::unique_ptr<Meter>> meters_;  // by stage
  std::int64_t last_global_step_ = 0;
};

/// Gives the loss of every training batch to a SpikeDetector: one small exchange between ranks in each. The
/// fit ends on all ranks with TrainingSpike. Lightning's SpikeDetection.
class LOCKSTEP_API SpikeDetection final : public Callback {
 public:
  /// @throws ConfigError as SpikeDetector
  explicit SpikeDetection(SpikeDetectionOptions options = {});

  /// The detector and what it has seen.
  const SpikeDetector& detector() const { return detector_; }

  void setup(TrainContext& context) override;
  /// @throws TrainingSpike
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  StateTree state() const override { return detector_.state(); }
  void load_state(const StateTree& state) override { detector_.load_state(state); }

 private:
  SpikeDetectionOptions options_;
  SpikeDetector detector_;
};

}  // namespace lockstep
