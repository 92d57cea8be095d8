// Which values of something that is watched are the better ones.
#pragma once

#include <span>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// Whether smaller or larger values are better.
enum class MonitorMode { kMin, kMax };

LOCKSTEP_API std::span<const OptionName<MonitorMode>> option_names(MonitorMode);

}  // namespace lockstep
