// Text of progress bars and their tables.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/train/callbacks/progress_bar.h>

#include "base/number_locale.h"

namespace lockstep::detail {

/// printf prints the sign of what is not a number.
template <class Value>
Value without_sign_of_nan(Value value) {
  if constexpr (std::is_floating_point_v<Value>) {
    if (std::isnan(value)) return std::numeric_limits<Value>::quiet_NaN();
  }
  return value;
}

template <class... Values>
std::string printed_as(const char* format, Values... values) {
  const NumbersWithPoint scope;
  std::string text(static_cast<std::size_t>(std::max(0, std::snprintf(nullptr, 0, format, values...))), ' ');
  std::snprintf(text.data(), text.size() + 1, format, values...);
  return text;
}

/// printf's, but for the sign of NaN.
template <class... Values>
std::string printed(const char* format, Values... given) {
  return printed_as(format, without_sign_of_nan(given)...);
}

/// "3/10"; of a stream that has not told its length yet, "3/?".
LOCKSTEP_API std::string place_text(const ProgressPass& pass);
/// "01:05".
std::string clock_text(double seconds);
/// Seconds until the end of the pass at its pace so far; 0 where unknown.
double seconds_left(const ProgressPass& pass);
double batches_per_second(const ProgressPass& pass);
/// Each metric behind `separator`: ", loss=0.5".
std::string metrics_text(const Metrics& metrics, const char* separator);

/// The line that is printed where no bar can be drawn: "epoch 0: batch 3/10, 5.1 it/s, loss=0.5".
LOCKSTEP_API std::string plain_line(const ProgressPass& pass, const Metrics& metrics);

/// The names of the metrics that an epoch's row shows.
LOCKSTEP_API std::vector<std::string> row_names(const Metrics& metrics);
LOCKSTEP_API std::string row_header(std::span<const std::string> names);
LOCKSTEP_API std::string row_text(std::int64_t epoch, std::int64_t step, std::span<const std::string> names,
                                  const Metrics& metrics, double seconds);

/// A table of results, as Lightning prints those of validate and test.
LOCKSTEP_API std::vector<std::string> result_lines(const char* title, const Metrics& metrics);

}  // namespace lockstep::detail
