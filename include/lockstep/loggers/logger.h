// Where metrics go. Loggers live on rank 0 only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <lockstep/base/export.h>

namespace lockstep {

/// One metric: name and value.
using Metric = std::pair<std::string, double>;

class LOCKSTEP_API Logger {
 public:
  virtual ~Logger();

  /// Takes one row. `step` counts the batches in which the optimizer stepped, from 0.
  virtual void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) = 0;

  /// Writes out what was taken.
  virtual void flush() {}

  /// The run ended; `status` is "success" or "failed".
  virtual void finalize(const std::string& status) = 0;
};

}  // namespace lockstep
