// Names of metrics as loggers write them.
#pragma once

#include <algorithm>
#include <cstdint>
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

/// The same, with the metric `epoch` unless there is one already.
inline std::vector<Metric> prefixed_row(const std::string& prefix, std::span<const Metric> metrics,
                                        std::int64_t epoch) {
  std::vector<Metric> row(metrics.begin(), metrics.end());
  if (std::ranges::find(row, "epoch", &Metric::first) == row.end()) {
    row.emplace_back("epoch", static_cast<double>(epoch));
  }
  return prefixed(prefix, row);
}

}  // namespace lockstep::detail
