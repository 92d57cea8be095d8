// How checks make findings; what a check is.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/doctor/doctor.h>

namespace lockstep::doctor {

/// What a check has found. The name of the check is added by examine().
using Findings = std::vector<Finding>;

inline Finding ok(std::string text) { return {.text = std::move(text)}; }
inline Finding note(std::string text, std::string advice = {}) {
  return {.state = FindingState::kNote, .text = std::move(text), .advice = std::move(advice)};
}
inline Finding warning(std::string text, std::string advice) {
  return {.state = FindingState::kWarning, .text = std::move(text), .advice = std::move(advice)};
}
inline Finding error(std::string text, std::string advice) {
  return {.state = FindingState::kError, .text = std::move(text), .advice = std::move(advice)};
}
inline Finding with_value(Finding finding, double value, std::string unit) {
  finding.value = value;
  finding.unit = std::move(unit);
  return finding;
}

/// "1 rank", "2 ranks".
inline std::string counted(long count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace lockstep::doctor
