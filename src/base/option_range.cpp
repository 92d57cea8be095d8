#include <lockstep/base/option_range.h>

#include <lockstep/base/option_type.h>

#include "base/format.h"

namespace lockstep {
namespace {

std::string printed(std::chrono::milliseconds duration) {
  return OptionType<std::chrono::milliseconds>::print(duration);
}

}  // namespace

OptionRange at_least(double low) { return {.low = low, .text = ">= " + number_text(low)}; }

OptionRange at_least(std::chrono::milliseconds low) {
  return {.low = static_cast<double>(low.count()), .text = ">= " + printed(low)};
}

OptionRange more_than(double low) { return {.low = low, .above_low = true, .text = "> " + number_text(low)}; }

OptionRange more_than(std::chrono::milliseconds low) {
  return {.low = static_cast<double>(low.count()), .above_low = true, .text = "> " + printed(low)};
}

OptionRange between(double low, double high) {
  return {.low = low, .high = high, .text = number_text(low) + ".." + number_text(high)};
}

}  // namespace lockstep
