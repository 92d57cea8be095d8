#include "base/option_unknown.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/nearest.h>

#include "base/format.h"
#include "base/option_keys.h"

namespace lockstep {
namespace {

bool is_group(const OptionTree& tree, const std::string& key) {
  return std::ranges::any_of(tree.groups(), [&](const OptionGroup& group) { return group.key == key; });
}

[[noreturn]] void throw_group_has_value(const Assignment& assignment) {
  throw ConfigError("options", {.what = assignment.key + " is a group of options",
                                .expected = "a map",
                                .got = shown(assignment.value),
                                .where = shown(assignment.source),
                                .hint = {}});
}

// `max_epochs: {a: 1}`: max_epochs is an option, max_epochs.a is none.
void refuse_below_value(const std::vector<OptionInfo>& options, const Assignment& assignment) {
  for (const auto& info : options) {
    const bool is_choice = info.type == "name" && std::ranges::any_of(options, [&](const OptionInfo& other) {
                             return other.choice == info.key;
                           });
    if (is_choice || info.key == assignment.key || !is_at_or_below(assignment.key, info.key)) continue;
    throw ConfigError("options", {.what = info.key + " takes a value",
                                  .expected = info.type,
                                  .got = "a map with key " + assignment.key.substr(info.key.size() + 1),
                                  .where = shown(assignment.source),
                                  .hint = {}});
  }
}

// The file that gave the member may have picked its alternative too; a later source picked another.
bool fell_with_its_choice(const Assignment& member, std::size_t index, const std::string& choice,
                          const std::map<std::string, std::size_t>& picked, std::span<const Assignment> all) {
  const auto winner = picked.find(choice);
  return winner != picked.end() && index < winner->second &&
         !member.source.same_origin(all[winner->second].source);
}

[[noreturn]] void throw_other_choice(const std::vector<OptionInfo>& options, const OptionInfo& info,
                                     const Assignment& assignment, const std::string& chosen) {
  std::vector<std::string> others;
  for (const auto& other : options) {
    if (other.choice == info.choice && std::ranges::count(other.only_for, chosen) > 0)
      others.push_back(other.key);
  }
  throw ConfigError(
      "options",
      {.what = info.key + " belongs to " + joined(info.only_for) + ", but " + info.choice + " is " + chosen,
       .expected = {},
       .got = {},
       .where = shown(assignment.source),
       .hint = others.empty() ? chosen + " has no options" : chosen + " has " + joined(others)});
}

std::string present_choice(const std::vector<OptionInfo>& options, const std::string& key) {
  const auto found = std::ranges::find(options, key, &OptionInfo::key);
  return found == options.end() ? "" : found->default_value;
}

}  // namespace

void refuse_unknown(const OptionTree& tree, const LeftOver& left,
                    const std::map<std::string, std::size_t>& picked, std::span<const Assignment> all) {
  const auto& assignment = *left.assignment;
  if (is_group(tree, assignment.key)) {
    const auto kind = assignment.value.kind;
    if (kind == OptionText::Kind::kMap || kind == OptionText::Kind::kNull) return;
    throw_group_has_value(assignment);
  }
  const auto options = tree.list();
  const auto known = std::ranges::find(options, assignment.key, &OptionInfo::key);
  if (known != options.end()) {
    if (fell_with_its_choice(assignment, left.index, known->choice, picked, all)) return;
    throw_other_choice(options, *known, assignment, present_choice(options, known->choice));
  }
  refuse_below_value(options, assignment);
  throw_unknown("key " + assignment.key, shown(assignment.source),
                did_you_mean(nearest_key(assignment.key, tree.keys())));
}

void throw_unknown(const std::string& what, const std::string& where, const std::string& hint) {
  throw ConfigError("options",
                    {.what = "unknown " + what, .expected = {}, .got = {}, .where = where, .hint = hint});
}

}  // namespace lockstep
