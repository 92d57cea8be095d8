// Environment variables to assignments.
#include <algorithm>

#include <lockstep/base/nearest.h>
#include <lockstep/base/option_sources.h>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "base/option_unknown.h"

namespace lockstep {
namespace {

bool is_strict(const std::string& variable, std::span<const std::string> strict_roots) {
  return std::ranges::any_of(
      strict_roots, [&](const std::string& root) { return variable.starts_with(variable_of(root) + "_"); });
}

[[noreturn]] void throw_ambiguous(const std::string& variable, const std::vector<std::string>& keys) {
  throw ConfigError("options",
                    {.what = "environment variable " + variable + " means " + joined(keys, " and "),
                     .expected = {},
                     .got = {},
                     .where = {},
                     .hint = "use a flag instead"});
}

}  // namespace

std::string variable_of(std::string_view key) {
  auto name = "LOCKSTEP_" + upper_case(key);
  std::ranges::replace(name, '.', '_');
  return name;
}

std::vector<Assignment> read_environment(const std::map<std::string, std::string>& variables,
                                         const OptionTree& tree, std::span<const std::string> strict_roots) {
  std::map<std::string, std::vector<std::string>> keys_of;
  std::vector<std::string> known;
  for (const auto& key : tree.keys()) {
    known.push_back(variable_of(key));
    keys_of[known.back()].push_back(key);
  }
  std::vector<Assignment> assignments;
  for (const auto& [variable, value] : variables) {
    const Source source{.kind = Source::Kind::kEnvironment, .name = variable};
    if (const auto found = keys_of.find(variable); found != keys_of.end()) {
      if (found->second.size() > 1) throw_ambiguous(variable, found->second);
      assignments.push_back({found->second.front(), {.text = value}, source});
    } else if (is_strict(variable, strict_roots)) {
      throw_unknown("environment variable " + variable, "", did_you_mean(nearest_name(variable, known)));
    }
  }
  return assignments;
}

}  // namespace lockstep
