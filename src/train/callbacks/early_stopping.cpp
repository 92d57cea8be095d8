#include <lockstep/train/callbacks/early_stopping.h>

#include <cmath>
#include <limits>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/train/trainer_options.h>

#include "train/callbacks/monitored_metric.h"

namespace lockstep {
namespace {

std::string text_of(double value) { return OptionType<double>::print(value); }

}  // namespace

EarlyStopping::EarlyStopping(EarlyStoppingOptions options) : options_(std::move(options)) {
  begin_anew();
  const bool is_usable = !options_.monitor.empty() && options_.patience >= 0;
  if (is_usable) return;
  throw ConfigError("train",
                    {.what = options_.monitor.empty() ? "EarlyStopping: monitor" : "EarlyStopping: patience",
                     .expected = options_.monitor.empty() ? "the name of a metric" : ">= 0",
                     .got = options_.monitor.empty() ? "nothing" : std::to_string(options_.patience)});
}

std::string EarlyStopping::state_key() const {
  return "EarlyStopping{'monitor': '" + options_.monitor + "', 'mode': '" +
         OptionType<MonitorMode>::print(options_.mode) + "'}";
}

void EarlyStopping::begin_anew() {
  wait_count_ = 0;
  stopped_epoch_ = 0;
  best_score_ = std::numeric_limits<double>::infinity() * (options_.mode == MonitorMode::kMin ? 1 : -1);
  reason_ = StoppingReason::kNotStopped;
  message_.clear();
  checked_ = 0;
  last_value_.reset();
  has_warned_ = false;
}

// The state of a resumed run is loaded later.
void EarlyStopping::setup(TrainContext& context) {
  if (context.stage() == Stage::kFit) begin_anew();
}

// Without validation the metrics of training are checked.
bool EarlyStopping::checks_on_train_epoch_end(const TrainContext& context) const {
  const auto& trainer = context.options();
  return options_.check_on_train_epoch_end.value_or(
      !context.has_validation() ||
      (trainer.val_check_interval.is_whole_epoch() && trainer.check_val_every_n_epoch == 1));
}

// Checks the restored state by the options of this run; checkpoints of 0.x lack a part of it.
StoppingReason EarlyStopping::reason_to_stay_stopped() const {
  if (!last_value_) return StoppingReason::kNotStopped;
  const auto reason = passed_limit(*last_value_);
  if (reason != StoppingReason::kNotStopped) return reason;
  return wait_count_ > 0 && wait_count_ >= options_.patience ? StoppingReason::kPatienceExhausted
                                                             : StoppingReason::kNotStopped;
}

// The reason to stop that a checkpoint contains; none in other runs.
void EarlyStopping::conclude_anew(TrainContext& context) {
  const auto stopped_epoch = stopped_epoch_;
  reason_ = StoppingReason::kNotStopped;
  conclude(context, reason_to_stay_stopped(), last_value_.value_or(0));
  if (reason_ != StoppingReason::kNotStopped && stopped_epoch > 0) stopped_epoch_ = stopped_epoch;
}

void EarlyStopping::on_train_start(TrainContext& context) {
  conclude_anew(context);
  if (context.has_validation() || checks_on_train_epoch_end(context) || !context.is_global_zero()) return;
  log_warning(
      "EarlyStopping(\"" + options_.monitor +
      "\"): check_on_train_epoch_end is false and there is no validation: it will never stop the fit");
}

void EarlyStopping::on_train_epoch_end(TrainContext& context) {
  if (checks_on_train_epoch_end(context)) check(context);
}

void EarlyStopping::on_validation_end(TrainContext& context) {
  if (!checks_on_train_epoch_end(context)) check(context);
}

void EarlyStopping::check(TrainContext& context) {
  if (context.stage() != Stage::kFit || context.options().fast_dev_run) return;
  const auto found = detail::monitored_metric(context, options_.monitor);
  if (!found)
    return detail::refuse_or_warn_of_missing("EarlyStopping", context, options_.monitor, options_.strict,
                                             has_warned_);
  const auto number = found->measured.number;
  if (number > 0 && std::exchange(checked_, number) == number) return;
  const double best_before = best_score_;
  last_value_ = found->value;
  const auto reason = judge(found->value);
  conclude(context, reason, found->value);
  if (reason != StoppingReason::kNotStopped) return;
  if (options_.verbose && best_score_ != best_before) {
    context.print("Metric " + options_.monitor + " improved" +
                  (std::isinf(best_before) ? ""
                                           : " by " + text_of(std::abs(best_before - best_score_)) +
                                                 " >= min_delta = " + text_of(std::abs(options_.min_delta))) +
                  ". New best score: " + text_of(best_score_));
  }
}

// Takes back an earlier request to stop.
void EarlyStopping::conclude(TrainContext& context, StoppingReason reason, double value) {
  const bool is_news = std::exchange(reason_, reason) != reason;
  const bool stops = reason != StoppingReason::kNotStopped;
  message_ = stops ? reason_for(value) : std::string();
  stopped_epoch_ = stops ? context.current_epoch() : 0;
  context.wish_to_stop(*this, stops);
  if (stops && is_news && context.is_global_zero()) log_info(message_);
}

bool EarlyStopping::is_better(double value, double than) const {
  return options_.mode == MonitorMode::kMin ? value < than : value > than;
}

// The checks are made in Lightning's order.
StoppingReason EarlyStopping::passed_limit(double value) const {
  if (options_.check_finite && !std::isfinite(value)) return StoppingReason::kNonFinite;
  if (options_.stopping_threshold && is_better(value, *options_.stopping_threshold))
    return StoppingReason::kStoppingThreshold;
  if (options_.divergence_threshold && is_better(*options_.divergence_threshold, value))
    return StoppingReason::kDivergenceThreshold;
  return StoppingReason::kNotStopped;
}

StoppingReason EarlyStopping::judge(double value) {
  const auto reason = passed_limit(value);
  if (reason != StoppingReason::kNotStopped) return reason;
  const double delta = options_.mode == MonitorMode::kMin ? options_.min_delta : -options_.min_delta;
  if (is_better(value + delta, best_score_)) {
    best_score_ = value;
    wait_count_ = 0;
    return StoppingReason::kNotStopped;
  }
  return ++wait_count_ >= options_.patience ? StoppingReason::kPatienceExhausted
                                            : StoppingReason::kNotStopped;
}

std::string EarlyStopping::reason_for(double value) const {
  const auto got = options_.monitor + " = " + text_of(value);
  switch (reason_) {
    case StoppingReason::kNonFinite:
      return "Monitored metric " + got + " is not finite. Previous best value was " + text_of(best_score_) +
             ". Signaling Trainer to stop.";
    case StoppingReason::kStoppingThreshold:
      return "Stopping threshold reached: " + got + ", threshold " + text_of(*options_.stopping_threshold) +
             ". Signaling Trainer to stop.";
    case StoppingReason::kDivergenceThreshold:
      return "Divergence threshold reached: " + got + ", threshold " +
             text_of(*options_.divergence_threshold) + ". Signaling Trainer to stop.";
    case StoppingReason::kPatienceExhausted:
      return "Monitored metric " + options_.monitor + " did not improve in the last " +
             std::to_string(wait_count_) + " records. Best score: " + text_of(best_score_) +
             ". Signaling Trainer to stop.";
    case StoppingReason::kNotStopped:
      break;
  }
  return {};
}

StateTree EarlyStopping::state() const {
  StateTree state;
  state.set("wait_count", std::int64_t{wait_count_});
  state.set("stopped_epoch", stopped_epoch_);
  state.set("best_score", best_score_);
  state.set("patience", std::int64_t{options_.patience});
  state.set("stopping_reason", static_cast<std::int64_t>(reason_));
  state.set("stopping_reason_message", message_);
  state.set("checked_validation", checked_);
  if (last_value_) state.set("last_value", *last_value_);
  return state;
}

// The option's patience is used, not the checkpoint's: runs are often resumed to be more patient.
void EarlyStopping::load_state(const StateTree& state) {
  wait_count_ = static_cast<int>(state.get<std::int64_t>("wait_count"));
  stopped_epoch_ = state.get<std::int64_t>("stopped_epoch");
  best_score_ = state.get<double>("best_score");
  if (!state.contains("stopping_reason")) return;  // written by 0.x before it was kept
  reason_ = static_cast<StoppingReason>(state.get<std::int64_t>("stopping_reason"));
  message_ = state.get<std::string>("stopping_reason_message");
  if (state.contains("checked_validation")) checked_ = state.get<std::int64_t>("checked_validation");
  if (state.contains("last_value")) last_value_ = state.get<double>("last_value");
}

void describe(OptionVisitor& v, EarlyStoppingOptions& o) {
  v.field("monitor", o.monitor, "Name of the logged metric; required");
  v.field("min_delta", o.min_delta, "What counts as better: by more than this");
  v.field("patience", o.patience, "Checks without anything better, after which the fit ends", at_least(0));
  v.field("verbose", o.verbose, "Say when the metric gets better");
  v.field("mode", o.mode, "Whether less (min) or more (max) is better");
  v.field("strict", o.strict, "A metric that was not logged is an error; false: a warning");
  v.field("check_finite", o.check_finite, "NaN and infinity end the fit");
  v.field("stopping_threshold", o.stopping_threshold, "A better value than this ends the fit");
  v.field("divergence_threshold", o.divergence_threshold, "A worse value than this ends the fit");
  v.field("check_on_train_epoch_end", o.check_on_train_epoch_end,
          "Check at the end of the training epoch (true) or of each validation (false); null: as they come");
}

}  // namespace lockstep
