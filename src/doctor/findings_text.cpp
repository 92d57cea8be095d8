// Findings as a text for a report of a problem, and as JSON.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <lockstep/base/version.h>

#include "doctor/findings.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kStateNames{"ok", "note", "warning", "error"};
constexpr std::size_t kLineWidth = 110;
constexpr std::size_t kStateWidth = 10, kCheckWidth = 15;
constexpr std::string_view kAboutThisText =
    "A report of a problem may hold this text: it names this host and its addresses, "
    "and no value of a variable that could be a secret.\n";

std::string_view name_of(FindingState state) { return kStateNames.at(static_cast<std::size_t>(state)); }

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// `text` in lines, each but the first behind `indent` blanks. A line of it that is its own stays so.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string lines;
  std::size_t column = indent;
  const auto new_line = [&] {
    if (lines.ends_with(' ')) lines.pop_back();
    lines += "\n" + std::string(indent, ' ');
    column = indent;
  };
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(" \n"), text.size());
    if (column > indent && column + end > kLineWidth) new_line();
    lines += text.substr(0, end);
    column += end;
    if (end == text.size()) break;
    if (text[end] == '\n') {
      new_line();
    } else {
      lines += ' ';
      ++column;
    }
    text.remove_prefix(end + 1);
  }
  return lines + "\n";
}

long count_of(std::span<const Finding> findings, FindingState state) {
  return std::ranges::count(findings, state, &Finding::state);
}

std::string finding_text(const Finding& finding, bool is_first_of_check) {
  const auto indent = kStateWidth + kCheckWidth;
  auto text = padded("[" + std::string(name_of(finding.state)) + "]", kStateWidth) +
              padded(is_first_of_check ? finding.check : "", kCheckWidth) + wrapped(finding.text, indent);
  if (!finding.advice.empty()) text += std::string(indent, ' ') + wrapped("-> " + finding.advice, indent + 3);
  return text;
}

}  // namespace

std::string findings_text(std::span<const Finding> findings) {
  std::string text;
  const std::string* check = nullptr;
  for (const auto& finding : findings) {
    text += finding_text(finding, check == nullptr || *check != finding.check);
    check = &finding.check;
  }
  using doctor::counted;
  return text + "\n" + counted(count_of(findings, FindingState::kError), "error") + ", " +
         counted(count_of(findings, FindingState::kWarning), "warning") + ", " +
         counted(count_of(findings, FindingState::kNote), "note") + ".\n" + std::string(kAboutThisText);
}

std::string findings_json(std::span<const Finding> findings, const std::string& commit) {
  Json counts, all = Json::array();
  for (const auto state :
       {FindingState::kOk, FindingState::kNote, FindingState::kWarning, FindingState::kError})
    counts[std::string(name_of(state))] = count_of(findings, state);
  for (const auto& each : findings) {
    Json one{{"check", each.check}, {"state", name_of(each.state)},
             {"text", each.text},   {"advice", each.advice},
             {"value", nullptr},    {"unit", each.unit}};
    if (each.value) one["value"] = *each.value;
    all.push_back(std::move(one));
  }
  const Json json{{"lockstep", kVersion},
                  {"commit", commit},
                  {"healthy", is_healthy(findings)},
                  {"counts", counts},
                  {"findings", all}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
