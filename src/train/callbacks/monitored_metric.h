// The metric that a callback watches: one value for all ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/train/train_context.h>

namespace lockstep::detail {

/// What rank 0 has logged under `name`; none where it has not. "epoch" and "step" always are there.
/// Collective.
std::optional<double> monitored_metric(const TrainContext& context, const std::string& name);

/// Says, for `who`, that rank 0 has logged nothing under `name`, and what it has. Collective.
/// @throws ConfigError, always
[[noreturn]] void refuse_missing(std::string_view who, const TrainContext& context, const std::string& name);

/// The same with `strict`, unless nothing at all was logged yet; else as a warning. Collective.
/// @throws ConfigError on all ranks alike
void refuse_or_warn_of_missing(std::string_view who, const TrainContext& context, const std::string& name,
                               bool strict);

}  // namespace lockstep::detail
