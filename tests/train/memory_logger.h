// A logger that keeps what it is given.
#pragma once

#include <string>
#include <vector>

#include <lockstep/loggers/logger.h>

namespace lockstep::testing {

struct MemoryLogger final : Logger {
  void log_metrics(std::span<const Metric> metrics, std::int64_t, std::int64_t step) override {
    for (const auto& [name, value] : metrics) {
      rows.push_back(name + "@" + std::to_string(step));
      values.push_back(value);
    }
  }
  void log_hyperparams(const HyperParameters& params) override { parameters = params; }
  void finalize(const std::string& status) override { end = status; }

  std::vector<std::string> rows;  // "loss@3": names and steps
  std::vector<double> values;     // of the rows
  HyperParameters parameters;
  std::string end;
};

}  // namespace lockstep::testing
