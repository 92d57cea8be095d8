// A row of metrics as loggers write it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/loggers/logger.h>

namespace lockstep::detail {

// Names of metrics as loggers write them.

/// `prefix-name` for each metric, or the metrics as they are where there is no prefix.
inline std::vector<Metric> prefixed(const std::string& prefix, std::span<const Metric> metrics) {
  std::vector<Metric> named(metrics.begin(), metrics.end());
  if (prefix.empty()) return named;
  for (auto& [name, value] : named) name = prefix + "-" + name;
  return named;
}

/// `bytes` as valid UTF-8: invalid bytes are replaced by U+FFFD.
std::string as_utf8(const std::string& bytes);

/// Whether it is a whole number that an int64 and a double hold exactly.
bool is_whole(double value);

/// As in Lightning, a metric that is called `epoch` or `step` stands in for the Trainer's own number.
struct MetricRow {
  double epoch = 0;
  double step = 0;
  std::int64_t whole_step = 0;       ///< for files whose steps are whole numbers
  std::vector<Metric> metrics = {};  ///< the others, their names in UTF-8; of one name the last

  /// The metrics and the epoch, under names that begin with `prefix-` unless that is empty.
  std::vector<Metric> prefixed(const std::string& prefix) const;
};

MetricRow row_of(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step);

}  // namespace lockstep::detail
