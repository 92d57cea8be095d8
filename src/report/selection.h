// Which curves a user wants to see.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/curve.h"

namespace lockstep::detail {

/// `wanted`, or all curves of `runs` when it is empty.
/// @throws ConfigError naming the nearest curve, when no run has one of them
std::vector<std::string> selected_names(std::span<const ComparedRun> runs,
                                        std::span<const std::string> wanted);

}  // namespace lockstep::detail
