#include "base/option_unknown.h"

#include <algorithm>
#include <ranges>

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
    if (info.is_choice || info.key == assignment.key || !is_at_or_below(assignment.key, info.key)) continue;
    throw ConfigError("options", {.what = info.key + " takes a value",
                                  .expected = info.type,
                                  .got = "a map with key " + assignment.key.substr(info.key.size() + 1),
                                  .where = shown(assignment.source),
                                  .hint = {}});
  }
}

const OptionInfo* find(const std::vector<OptionInfo>& options, const std::string& key) {
  const auto found = std::ranges::find(options, key, &OptionInfo::key);
  return found == options.end() ? nullptr : &*found;
}

// The option that `key` names; a choice can be named by `choice.name` too.
const OptionInfo* find_named(const std::vector<OptionInfo>& options, const std::string& key) {
  if (const auto* option = find(options, key)) return option;
  const auto dot = key.rfind('.');
  if (dot == std::string::npos || key.substr(dot + 1) != kChoiceName) return nullptr;
  const auto* choice = find(options, key.substr(0, dot));
  return choice != nullptr && choice->is_choice ? choice : nullptr;
}

// `option` and the choices above it, innermost first; each but the last depends on the next.
std::vector<const OptionInfo*> with_choices_above(const std::vector<OptionInfo>& options,
                                                  const OptionInfo* option) {
  std::vector<const OptionInfo*> chain;
  for (; option != nullptr; option = find(options, option->choice)) chain.push_back(option);
  return chain;
}

// The source that gave the member may have picked its alternative too; a later one picked another.
bool fell_with_its_choice(const LeftOver& left, const std::string& choice,
                          const std::map<std::string, std::size_t>& picked, std::span<const Assignment> all) {
  const auto winner = picked.find(choice);
  if (winner == picked.end()) return false;
  return left.index < winner->second && !left.assignment->source.same_origin(all[winner->second].source);
}

// `info` is a member of alternatives other than the `chosen` one.
[[noreturn]] void throw_other_choice(const std::vector<OptionInfo>& options, const OptionInfo& info,
                                     const Assignment& assignment, const std::string& chosen) {
  std::vector<std::string> others;
  for (const auto& other : options) {
    if (other.choice == info.choice && std::ranges::count(other.only_for, chosen) > 0)
      others.push_back(other.key);
  }
  throw ConfigError(
      "options", {.what = assignment.key + " belongs to " + joined(info.only_for) + ", but " + info.choice +
                          " is " + chosen,
                  .expected = {},
                  .got = {},
                  .where = shown(assignment.source),
                  .hint = others.empty() ? chosen + " has no options: give " + info.choice + " there as well"
                                         : chosen + " has " + joined(others)});
}

// For a key that exists, but not in the alternatives that are held: names the outermost of them.
void refuse_misplaced(const std::vector<OptionInfo>& options, const std::vector<const OptionInfo*>& chain,
                      const Assignment& assignment) {
  for (const auto* info : chain | std::views::reverse) {
    const auto* choice = find(options, info->choice);
    const bool is_held = choice == nullptr || std::ranges::count(info->only_for, choice->default_value) > 0;
    if (!is_held) throw_other_choice(options, *info, assignment, choice->default_value);
  }
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
  const auto chain = with_choices_above(options, find_named(options, assignment.key));
  const auto fell = [&](const OptionInfo* info) {
    return fell_with_its_choice(left, info->choice, picked, all);
  };
  if (std::ranges::any_of(chain, fell)) return;
  refuse_misplaced(options, chain, assignment);
  refuse_below_value(options, assignment);
  throw_unknown("key " + assignment.key, shown(assignment.source),
                did_you_mean(nearest_key(assignment.key, tree.keys())));
}

void throw_unknown(const std::string& what, const std::string& where, const std::string& hint) {
  throw ConfigError("options",
                    {.what = "unknown " + what, .expected = {}, .got = {}, .where = where, .hint = hint});
}

}  // namespace lockstep
