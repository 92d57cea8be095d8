// The settings of a run that loggers keep: learning rate, layers, names.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// The value of one setting.
using HyperParameter = std::variant<bool, std::int64_t, double, std::string>;

/// Names with values. A slash in a name nests: `optimizer/lr` is `lr` of `optimizer`.
using HyperParameters = std::vector<std::pair<std::string, HyperParameter>>;

}  // namespace lockstep
