// The table of SimpleProfiler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

struct SimpleRow {
  std::string action;
  std::uint64_t calls;  ///< at least 1
  double total_s;
};

/// Lightning's table. `run_s` is what the percentages are of; without `extended` they and the number of calls
/// are left out, and actions are sorted by their mean, not by their total.
LOCKSTEP_API std::string simple_report(const std::string& heading, std::vector<SimpleRow> rows, double run_s,
                                       bool extended);

}  // namespace lockstep::detail
