#include "optim/groups.h"

#include <fnmatch.h>

#include <lockstep/base/nearest.h>

#include <algorithm>
#include <utility>

#include "optim/refuse.h"

namespace lockstep::detail {
namespace {

bool matches(const ParameterGroup& group, const std::string& name) {
  return fnmatch(group.pattern.c_str(), name.c_str(), 0) == 0;
}

Optimizer::Group with_overrides(Optimizer::Group group, const ParameterGroup& overrides) {
  group.pattern = overrides.pattern;
  group.lr = group.initial_lr = overrides.lr.value_or(group.lr);
  group.weight_decay = overrides.weight_decay.value_or(group.weight_decay);
  if (overrides.momentum) group.momentum = overrides.momentum;
  if (overrides.betas) group.betas = overrides.betas;
  return group;
}

[[noreturn]] void refuse_idle_pattern(const ParameterGroup& group,
                                      std::span<const NamedParameter> parameters) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.name);
  const bool taken =
      std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(group, name); });
  refuse("groups: pattern \"" + group.pattern + "\" chooses no parameter", "a glob over " + some_of(names),
         taken ? "only parameters that an earlier pattern chose" : "no match",
         taken ? "the first pattern that matches wins: put the narrower one first"
               : did_you_mean(nearest_name(group.pattern, names)));
}

}  // namespace

Grouping group_parameters(std::span<const NamedParameter> parameters, const Optimizer::Group& defaults,
                          std::span<const ParameterGroup> patterns) {
  Grouping result;
  for (const auto& pattern : patterns) result.groups.push_back(with_overrides(defaults, pattern));
  result.groups.push_back(defaults);
  for (const auto& parameter : parameters) {
    const auto found = std::find_if(patterns.begin(), patterns.end(),
                                    [&](const auto& pattern) { return matches(pattern, parameter.name); });
    result.group_of.push_back(static_cast<std::size_t>(found - patterns.begin()));
    result.groups[result.group_of.back()].parameters.push_back(parameter.name);
  }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (result.groups[i].parameters.empty()) refuse_idle_pattern(patterns[i], parameters);
  }
  if (result.groups.back().parameters.empty()) result.groups.pop_back();
  return result;
}

}  // namespace lockstep::detail
