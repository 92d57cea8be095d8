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

void refuse_or_warn_of_missing(std::string_view who, const TrainContext& context, const std::string& name,
                               bool strict) {
  std::string known;
  for (const auto& [other, value] : context.callback_metrics()) known += (known.empty() ? "" : ", ") + other;
  const std::string what = std::string(who) + ": the monitored metric \"" + name + "\" was not logged";
  if (!strict || known.empty()) {
    if (context.is_global_zero()) log_warning(what + (known.empty() ? "" : "; there are " + known));
    return;
  }
  throw ConfigError("train", {.what = what,
                              .expected = "one of " + known,
                              .got = "\"" + name + "\"",
                              .hint = "log it in every epoch, or choose another monitor"});
}

}  // namespace lockstep::detail
