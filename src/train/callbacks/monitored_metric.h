// The metric that a callback watches: one value for all ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/train/train_context.h>

namespace lockstep::detail {

/// The value that a callback watches, and the validation that measured it.
struct MonitoredMetric {
  double value = 0;
  Measurement measured = {};

  /// Whether the weights have changed since that validation.
  bool is_stale(const TrainContext& context) const {
    return measured.number > 0 && measured.global_step != context.global_step();
  }
};

/// The value that rank 0 has logged under `name`; none without one. Where nothing was logged under "epoch" or
/// "step", these are the Trainer's own numbers. Collective.
std::optional<MonitoredMetric> monitored_metric(const TrainContext& context, const std::string& name);

/// Throws, in the name of `who`, the error that rank 0 has logged nothing under `name`; it lists what was
/// logged. Collective.
/// @throws ConfigError, always
[[noreturn]] void refuse_missing(std::string_view who, const TrainContext& context, const std::string& name);

/// Whether a validation may still log the metric: there is validation data, and no validation has ended. The
/// same on all ranks.
inline bool awaits_validation(const TrainContext& context) {
  return context.has_validation() && context.num_validations() == 0;
}

/// As refuse_missing() with `strict`, unless nothing at all was logged yet or a validation is still to come;
/// else a warning, unless `has_warned`, which is true afterwards. Collective.
/// @throws ConfigError on all ranks alike
void refuse_or_warn_of_missing(std::string_view who, const TrainContext& context, const std::string& name,
                               bool strict, bool& has_warned);

}  // namespace lockstep::detail
