#include <lockstep/train/callbacks/learning_rate_monitor.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep {

void LearningRateMonitor::on_train_start(TrainContext& context) {
  if (context.options().logger.empty() && !context.options().fast_dev_run) {
    throw ConfigError("train", {.what = "LearningRateMonitor in a Trainer without a logger",
                                .expected = "a logger",
                                .got = "logger = false"});
  }
  if (!context.lr_scheduler() && context.is_global_zero())
    log_warning("LearningRateMonitor: there is no learning-rate schedule; the rate is constant");
}

// Without a wish each rate is logged as often as it changes; without a schedule it never does.
bool LearningRateMonitor::logs_at(const TrainContext& context, Interval interval) const {
  if (options_.logging_interval) return *options_.logging_interval == interval;
  const auto& schedule = context.lr_scheduler();
  return (schedule ? schedule->interval : Interval::kEpoch) == interval;
}

void LearningRateMonitor::on_train_batch_start(StepContext& step) {
  const int every = step.options().log_every_n_steps;
  if (every <= 0 || !logs_at(step, Interval::kStep)) return;
  const bool opens_window =
      step.batch_idx() % step.options().accumulate_grad_batches.at(step.current_epoch()) == 0;
  if (opens_window && (step.batches_that_stepped() + 1) % every == 0) log(step);
}

void LearningRateMonitor::on_train_epoch_start(TrainContext& context) {
  if (logs_at(context, Interval::kEpoch)) log(context);
}

void LearningRateMonitor::log(TrainContext& context) const {
  const auto loggers = context.loggers();
  if (loggers.empty()) return;
  const auto& optimizer = context.optimizer();
  const bool one = optimizer.groups().size() == 1;
  const auto& schedule = context.lr_scheduler();
  const bool is_named = schedule && !schedule->name.empty();
  const auto base = is_named ? schedule->name : "lr-" + std::string(optimizer.name());
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < optimizer.groups().size(); ++i) {
    const auto& group = optimizer.groups()[i];
    const auto name = options_.log_key_prefix + base + (one ? "" : "/pg" + std::to_string(i + 1));
    metrics.emplace_back(name, group.lr);
    if (options_.log_momentum)
      metrics.emplace_back(name + "-momentum",
                           group.betas ? group.betas->front() : group.momentum.value_or(0));
    if (options_.log_weight_decay) metrics.emplace_back(name + "-weight_decay", group.weight_decay);
  }
  for (const auto& logger : loggers)
    logger->log_metrics(metrics, context.current_epoch(), context.batches_that_stepped());
}

}  // namespace lockstep
