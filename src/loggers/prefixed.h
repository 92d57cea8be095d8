// Names of metrics as loggers write them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <lockstep/loggers/logger.h>

namespace lockstep::detail {

/// `prefix-name` for each metric, or the metrics as they are where there is no prefix.
inline std::vector<Metric> prefixed(const std::string& prefix, std::span<const Metric> metrics) {
  std::vector<Metric> named(metrics.begin(), metrics.end());
  if (prefix.empty()) return named;
  for (auto& [name, value] : named) name = prefix + "-" + name;
  return named;
}

}  // namespace lockstep::detail
