// What findings say, for comparisons.
#pragma once

#include <string>
#include <vector>

#include "doctor/findings.h"

namespace lockstep::doctor {

/// Texts and advice of the findings in that state, joined.
inline std::string said(const Findings& findings, FindingState state) {
  std::string text;
  for (const auto& each : findings)
    if (each.state == state) text += each.text + " -> " + each.advice + "\n";
  return text;
}

inline std::string errors(const Findings& findings) { return said(findings, FindingState::kError); }
inline std::string warnings(const Findings& findings) { return said(findings, FindingState::kWarning); }
inline std::string notes(const Findings& findings) { return said(findings, FindingState::kNote); }
inline std::string fine(const Findings& findings) { return said(findings, FindingState::kOk); }

/// Whether nothing is wrong, and nothing is to be noted.
inline bool is_all_fine(const Findings& findings) {
  return !findings.empty() && (errors(findings) + warnings(findings) + notes(findings)).empty();
}

}  // namespace lockstep::doctor
