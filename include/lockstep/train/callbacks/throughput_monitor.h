// ThroughputMonitor: writes batches, samples and operations per second to the loggers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/fabric/throughput.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

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
  std::string separator = "/";
};

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

}  // namespace lockstep
