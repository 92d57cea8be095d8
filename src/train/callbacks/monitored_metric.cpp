#include "train/callbacks/monitored_metric.h"

#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/torch.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {
namespace {

// A logged value takes precedence over the Trainer's own number.
std::optional<double> value_of(const TrainContext& context, const std::string& name) {
  const auto& metrics = context.callback_metrics();
  if (const auto found = metrics.find(name); found != metrics.end()) return found->second;
  if (name == "epoch") return static_cast<double>(context.current_epoch());
  if (name == "step") return static_cast<double>(context.global_step());
  return std::nullopt;
}

}  // namespace

std::optional<MonitoredMetric> monitored_metric(const TrainContext& context, const std::string& name) {
  const auto found = value_of(context, name);
  const auto measured = context.measured(name);
  const auto word =
      torch::tensor({found ? 1.0 : 0.0, found.value_or(0.0), static_cast<double>(measured.number),
                     static_cast<double>(measured.epoch), static_cast<double>(measured.global_step)},
                    torch::kDouble);
  context.strategy().communicator().broadcast(word, 0);
  const auto* said = word.const_data_ptr<double>();
  if (said[0] == 0) return std::nullopt;
  return MonitoredMetric{.value = said[1],
                         .measured = {.number = static_cast<std::int64_t>(said[2]),
                                      .epoch = static_cast<std::int64_t>(said[3]),
                                      .global_step = static_cast<std::int64_t>(said[4])}};
}

namespace {

// Rank 0's value, for all ranks, since they must decide alike.
std::string known_metrics(const TrainContext& context) {
  std::string known;
  for (const auto& [other, value] : context.callback_metrics()) known += (known.empty() ? "" : ", ") + other;
  return context.strategy().communicator().broadcast_bytes(known, 0);
}

std::string missing(std::string_view who, const std::string& name) {
  return std::string(who) + ": the monitored metric \"" + name + "\" was not logged";
}

// A hint for metrics of validation in a fit that does not validate.
bool is_validation_off(const TrainContext& context) {
  return !context.has_validation() && context.options().limit_val_batches.is_zero();
}

std::string hint_for(const TrainContext& context) {
  if (is_validation_off(context))
    return "limit_val_batches is 0, so nothing is validated: raise it, or choose a metric that training logs";
  return "log it in every epoch, or choose another monitor";
}

[[noreturn]] void refuse(std::string_view who, const TrainContext& context, const std::string& name,
                         const std::string& known) {
  throw ConfigError("train", {.what = missing(who, name),
                              .expected = known.empty() ? "a metric that was logged" : "one of " + known,
                              .got = "\"" + name + "\"",
                              .hint = hint_for(context)});
}

}  // namespace

void refuse_missing(std::string_view who, const TrainContext& context, const std::string& name) {
  refuse(who, context, name, known_metrics(context));
}

void refuse_or_warn_of_missing(std::string_view who, const TrainContext& context, const std::string& name,
                               bool strict, bool& has_warned) {
  const auto known = known_metrics(context);
  const bool waits = awaits_validation(context);
  if (strict && !known.empty() && !waits) refuse(who, context, name, known);
  if (std::exchange(has_warned, true) || !context.is_global_zero()) return;
  log_warning(missing(who, name) + (known.empty() ? "" : "; there are " + known) +
              (waits ? "; no validation has ended yet" : "") +
              (is_validation_off(context) ? "; limit_val_batches is 0" : ""));
}

}  // namespace lockstep::detail
