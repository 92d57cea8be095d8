#include "train/callbacks/monitored_metric.h"

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

std::optional<double> monitored_metric(const TrainContext& context, const std::string& name) {
  if (name == "epoch") return static_cast<double>(context.current_epoch());
  if (name == "step") return static_cast<double>(context.global_step());
  const auto& metrics = context.callback_metrics();
  const auto found = metrics.find(name);
  const bool is_there = found != metrics.end();
  const auto word = torch::tensor({is_there ? 1.0 : 0.0, is_there ? found->second : 0.0}, torch::kDouble);
  context.strategy().communicator().broadcast(word, 0);
  if (word[0].item<double>() == 0) return std::nullopt;
  return word[1].item<double>();
}

namespace {

// What rank 0 has logged, for all: they must take the same way.
std::string known_metrics(const TrainContext& context) {
  std::string known;
  for (const auto& [other, value] : context.callback_metrics()) known += (known.empty() ? "" : ", ") + other;
  return context.strategy().communicator().broadcast_bytes(known, 0);
}

std::string missing(std::string_view who, const std::string& name) {
  return std::string(who) + ": the monitored metric \"" + name + "\" was not logged";
}

[[noreturn]] void refuse(std::string_view who, const std::string& name, const std::string& known) {
  throw ConfigError("train", {.what = missing(who, name),
                              .expected = known.empty() ? "a metric that was logged" : "one of " + known,
                              .got = "\"" + name + "\"",
                              .hint = "log it in every epoch, or choose another monitor"});
}

}  // namespace

void refuse_missing(std::string_view who, const TrainContext& context, const std::string& name) {
  refuse(who, name, known_metrics(context));
}

void refuse_or_warn_of_missing(std::string_view who, const TrainContext& context, const std::string& name,
                               bool strict) {
  const auto known = known_metrics(context);
  if (strict && !known.empty()) refuse(who, name, known);
  if (context.is_global_zero())
    log_warning(missing(who, name) + (known.empty() ? "" : "; there are " + known));
}

}  // namespace lockstep::detail
