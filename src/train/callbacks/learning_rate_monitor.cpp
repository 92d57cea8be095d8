#include <lockstep/train/callbacks/learning_rate_monitor.h>

#include <algorithm>
#include <map>
#include <string_view>

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
  const bool is_scheduled = std::ranges::any_of(
      context.optimizers(), [](const auto& optimizer) { return optimizer.lr_scheduler.has_value(); });
  if (!is_scheduled && context.is_global_zero())
    log_warning("LearningRateMonitor: there is no learning-rate schedule; the rate is constant");
}

// Without a wish each rate is logged as often as it changes; without a schedule it never does.
bool LearningRateMonitor::logs_at(const RunOptimizer& optimizer, Interval interval) const {
  if (options_.logging_interval) return *options_.logging_interval == interval;
  return (optimizer.lr_scheduler ? optimizer.lr_scheduler->interval : Interval::kEpoch) == interval;
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
  const auto loggers = context.loggers();
  if (loggers.empty()) return;
  const auto optimizers = context.optimizers();
  const auto names = names_of(optimizers);
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    if (logs_at(optimizers[i], interval)) add_groups(*optimizers[i].optimizer, names[i], metrics);
  }
  if (metrics.empty()) return;
  for (const auto& logger : loggers)
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

}  // namespace lockstep
