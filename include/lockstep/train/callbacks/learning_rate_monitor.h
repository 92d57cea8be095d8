// LearningRateMonitor: writes learning rates to the loggers.
#pragma once

#include <optional>
#include <string>

#include <lockstep/loggers/logger.h>
#include <lockstep/optim/scheduler_options.h>
#include <lockstep/train/hooks.h>
#include <lockstep/train/run_optimizer.h>

namespace lockstep {

/// Names, meaning and defaults are Lightning's.
struct LearningRateMonitorOptions {
  std::optional<Interval> logging_interval = {};  ///< each step or each epoch; none: as the schedule advances
  bool log_momentum = false;                      ///< or beta1
  bool log_weight_decay = false;
  std::string log_key_prefix = {};
};

/// Gives the loggers the learning rate of every group as `lr-AdamW`, or `lr-AdamW/pg1`, `lr-AdamW/pg2` where
/// there are several; of several optimizers of a class the second as `lr-AdamW-1`. A schedule's own name
/// stands in place of `lr-AdamW`. Steps are logged every log_every_n_steps.
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

}  // namespace lockstep
