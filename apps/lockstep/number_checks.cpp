#include "number_checks.h"

#include <string>

#include <lockstep/base/option_type.h>

namespace {

std::string refusal(const std::string& expected, const std::string& got) {
  return "expected " + expected + "; got \"" + got + "\"";
}

}  // namespace

CLI::Validator whole_number(int min, int max) {
  const bool is_open = max == std::numeric_limits<int>::max();
  const auto accepted = is_open ? "a whole number >= " + std::to_string(min)
                                : "a whole number of " + std::to_string(min) + " to " + std::to_string(max);
  const auto check = [=](std::string& text) {
    const auto number = lockstep::OptionType<int>::parse(text);
    return number && *number >= min && *number <= max ? "" : refusal(accepted, text);
  };
  return {check, ""};
}

CLI::Validator number_of_seconds(double min, double max) {
  const auto accepted =
      CLI::detail::to_string(min) + " to " + std::to_string(static_cast<long>(max)) + " seconds";
  const auto check = [=](std::string& text) {
    const auto seconds = lockstep::OptionType<double>::parse(text);
    return seconds && *seconds >= min && *seconds <= max ? "" : refusal(accepted, text);
  };
  return {check, ""};
}
