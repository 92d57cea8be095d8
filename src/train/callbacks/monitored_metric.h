// The metric that a callback watches: one value for all ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/train/train_context.h>

namespace lockstep::detail {

/// What a callback watches, and the validation that it is of.
struct MonitoredMetric {
  double value = 0;
  Measurement measured = {};

  /// Whether other weights were validated than those of now.
  bool is_stale(const TrainContext& context) const {
    return measured.number > 0 && measured.global_step != context.global_step();
  }
};

/// What rank 0 has logged under `name`; none where it has not. "epoch" and "step" are the Trainer's own
/// numbers where nothing was logged under these names. Collective.
std::optional<MonitoredMetric> monitored_metric(const TrainContext& context, const std::string& name);

/// Says, for `who`, that rank 0 has logged nothing under `name`, and what it has. Collective.
/// @throws ConfigError, always
[[noreturn]] void refuse_missing(std::string_view who, const TrainContext& context, const std::string& name);

/// Whether a validation may still log what is missing: there are some, and none has ended. On all ranks
/// alike.
inline bool awaits_validation(const TrainContext& context) {
  return context.has_validation() && context.num_validations() == 0;
}

/// The same with `strict`, unless nothing at all was logged yet or a validation is still to come; else as a
/// warning. Collective.
/// @throws ConfigError on all ranks alike
void refuse_or_warn_of_missing(std::string_view who, const TrainContext& context, const std::string& name,
                               bool strict);

}  // namespace lockstep::detail
