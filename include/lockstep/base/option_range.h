// Ranges that numbers, durations and list items must lie in.
#pragma once

#include <chrono>
#include <limits>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep {

/// What an option's value must satisfy; by default everything passes. Durations count in
/// milliseconds. For a list it holds of each item; an empty std::optional always passes.
struct OptionRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;  ///< `low` itself is outside
  std::string text = {};   ///< as printed: ">= 1", "> 0", "0..1"; empty: no restriction

  /// Whether `number` lies inside.
  bool holds(double number) const { return (above_low ? number > low : number >= low) && number <= high; }
};

/// `>= low`
LOCKSTEP_API OptionRange at_least(double low);
/// `>= low`
LOCKSTEP_API OptionRange at_least(std::chrono::milliseconds low);
/// `> low`
LOCKSTEP_API OptionRange more_than(double low);
/// `> low`
LOCKSTEP_API OptionRange more_than(std::chrono::milliseconds low);
/// `low..high`, both included
LOCKSTEP_API OptionRange between(double low, double high);

}  // namespace lockstep
