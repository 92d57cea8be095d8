// The pass that writes assignments into options.
#include "base/option_keys.h"

#include <algorithm>
#include <array>
#include <map>
#include <ranges>
#include <string_view>

#include <lockstep/base/error.h>
#include <lockstep/base/options.h>

#include "base/format.h"
#include "base/read_objects.h"

namespace lockstep {

std::string place(const Assignment& assignment, int line, int column) {
  if (line == 0) return shown(assignment.source);
  auto source = assignment.source;
  source.line = line;
  source.column = column;
  return shown(source);
}

namespace {

class Applier final : public KeyedVisitor {
 public:
  explicit Applier(std::span<const Assignment> assignments) : assignments_(assignments) {
    for (std::size_t i = 0; i < assignments.size(); ++i) by_key_[assignments[i].key].push_back(i);
  }

  void visit_field(OptionField& field) override {
    const auto path = key(field.name());
    std::map<std::size_t, Assignment> given;
    for (const auto index : take(path)) given.emplace(index, assignments_[index]);
    if (field.info().is_map) take_entries(path, given);
    keep_default_for_null(field, given);
    for (const auto& [index, assignment] : given) read(field, path, assignment);
  }

  void visit_choice(OptionChoice& choice) override {
    const auto path = key(choice.name());
    auto selectors = take(path);
    std::ranges::copy(take(joined_key(path, kChoiceName)), std::back_inserter(selectors));
    std::ranges::sort(selectors);
    for (const auto index : selectors) select(choice, path, index);
    if (picked_.contains(path)) pick(choice, path);
    inside(choice.name(), [&] { choice.describe_held(*this); });
  }

  void visit_objects(OptionObjects& list) override {
    const auto path = key(list.name());
    std::map<std::size_t, bool> given;  // whether it appends
    for (const auto index : take_any(path)) given[index] = false;
    for (const auto index : take_any(path + std::string(kAppends))) given[index] = true;
    for (const auto& [index, appends] : given) read_objects(list, path, assignments_[index], appends);
    for (const auto& above : {path, path + std::string(kAppends)}) {
      const auto entry = by_key_.lower_bound(above + ".");
      if (entry != by_key_.end() && entry->first.starts_with(above + "."))
        refuse_map_of_objects(above, assignments_[entry->second.front()]);
    }
  }

  /// The assignments that no member has taken.
  std::vector<LeftOver> left_over() const {
    std::vector<LeftOver> left;
    for (const auto& [key, indices] : by_key_) {
      for (const auto index : indices) left.push_back({index, &assignments_[index]});
    }
    std::ranges::sort(left, {}, &LeftOver::index);
    return left;
  }

  const std::map<std::string, std::size_t>& picked() const { return picked_; }

 private:
  // Not for members that are lists of objects.
  std::vector<std::size_t> take(const std::string& path) {
    auto indices = take_any(path);
    for (const auto index : indices) refuse_classes(assignments_[index]);
    return indices;
  }

  std::vector<std::size_t> take_any(const std::string& path) {
    const auto found = by_key_.find(path);
    if (found == by_key_.end()) return {};
    auto indices = std::move(found->second);
    by_key_.erase(found);
    return indices;
  }

  // The entries of a map were read as options below it: here those from one file become one value again.
  void take_entries(const std::string& path, std::map<std::size_t, Assignment>& given) {
    std::vector<std::size_t> indices;
    for (auto entry = by_key_.lower_bound(path + "."); entry != by_key_.end(); entry = by_key_.erase(entry)) {
      if (!is_at_or_below(entry->first, path)) break;
      indices.insert(indices.end(), entry->second.begin(), entry->second.end());
    }
    std::ranges::sort(indices);
    const Assignment* before = nullptr;
    std::string entries;
    for (const auto index : indices) {
      const auto& assignment = assignments_[index];
      if (before == nullptr || !before->source.same_origin(assignment.source)) entries.clear();
      const auto entry = assignment.key.substr(path.size() + 1) + ": " + assignment.value.text;
      entries += (entries.empty() ? "" : ", ") + entry;
      given.insert_or_assign(index, assignment).first->second.value.text = "{" + entries + "}";
      before = &assignment;
    }
  }

  // A null in a file sets a member that cannot be null to its default, whatever was given before, as in the
  // files that LightningCLI writes.
  static void keep_default_for_null(OptionField& field, std::map<std::size_t, Assignment>& given) {
    const auto last = std::find_if(given.rbegin(), given.rend(), [](const auto& entry) {
      return entry.second.value.kind == OptionText::Kind::kNull;
    });
    if (last != given.rend() && !field.read(last->second.value)) given.erase(given.begin(), last.base());
  }

  static void read(OptionField& field, const std::string& path, const Assignment& assignment) {
    const auto done = field.read(assignment.value);
    if (done) return;
    const auto& failure = done.error();
    const auto names = field.info().names;
    throw ConfigError("options", {.what = path,
                                  .expected = failure.expected,
                                  .got = failure.got,
                                  .where = place(assignment, failure.line, failure.column),
                                  .hint = did_you_mean(nearest_name(assignment.value.text, names))});
  }

  void select(const OptionChoice& choice, const std::string& path, std::size_t index) {
    const auto& [key, value, source] = assignments_[index];
    if (value.kind == OptionText::Kind::kMap) return;  // `strategy: {}`
    if (value.kind == OptionText::Kind::kNull) {
      picked_.erase(path);
      return;
    }
    if (value.kind == OptionText::Kind::kScalar && choice.find(value.text)) {
      picked_[path] = index;
      return;
    }
    const auto names = choice.names();
    throw ConfigError("options", {.what = path,
                                  .expected = detail::one_of(names),
                                  .got = shown(value),
                                  .where = place(assignments_[index], value.line, value.column),
                                  .hint = did_you_mean(nearest_name(value.text, names))});
  }

  void pick(OptionChoice& choice, const std::string& path) {
    const auto& winner = assignments_[picked_.at(path)];
    const auto row = *choice.find(winner.value.text);
    const auto& reason = choice.rows()[row].unavailable;
    if (!reason.empty()) {
      throw ConfigError("options",
                        {.what = path + " " + choice.rows()[row].name + " is not available: " + reason,
                         .expected = {},
                         .got = {},
                         .where = place(winner, winner.value.line, winner.value.column),
                         .hint = {}});
    }
    choice.pick(row);
  }

  std::span<const Assignment> assignments_;
  std::map<std::string, std::vector<std::size_t>> by_key_;
  std::map<std::string, std::size_t> picked_;  // key of a choice -> index of the assignment that won
};

}  // namespace

void OptionTree::apply(std::span<const Assignment> assignments) const {
  Applier applier(assignments);
  visit(applier);
  for (const auto& left : applier.left_over()) refuse_unknown(*this, left, applier.picked(), assignments);
}

void OptionTree::apply(std::span<const Assignment> assignments, std::string_view root) const {
  OptionTree only;
  std::ranges::copy_if(roots_, std::back_inserter(only.roots_),
                       [&](const Root& own) { return own.prefix == root; });
  if (only.roots_.empty()) {
    throw ConfigError("options", {.what = "no options are known as " + std::string(root),
                                  .expected = {},
                                  .got = {},
                                  .where = {},
                                  .hint = {}});
  }
  std::vector<Assignment> below;
  std::ranges::copy_if(assignments, std::back_inserter(below),
                       [&](const Assignment& assignment) { return is_at_or_below(assignment.key, root); });
  only.apply(below);
}

}  // namespace lockstep

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

// Whether the alternative that has this member was picked by the same source, and then replaced by a later
// one.
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

// Refuses a key that exists, but not in the alternatives that are held: names the outermost of these.
void refuse_misplaced(const std::vector<OptionInfo>& options, const std::vector<const OptionInfo*>& chain,
                      const Assignment& assignment) {
  for (const auto* info : chain | std::views::reverse) {
    const auto* choice = find(options, info->choice);
    const bool is_held = choice == nullptr || std::ranges::count(info->only_for, choice->default_value) > 0;
    if (!is_held) throw_other_choice(options, *info, assignment, choice->default_value);
  }
}

// The keys that can be given with the alternatives that are held.
std::vector<std::string> keys_held(const OptionTree& tree, const std::vector<OptionInfo>& options) {
  auto keys = tree.keys();
  std::erase_if(keys, [&](const std::string& key) {
    return std::ranges::any_of(with_choices_above(options, find(options, key)), [&](const auto* info) {
      const auto* const choice = find(options, info->choice);
      return choice != nullptr && std::ranges::count(info->only_for, choice->default_value) == 0;
    });
  });
  return keys;
}

}  // namespace

void refuse_unknown(const OptionTree& tree, const LeftOver& left,
                    const std::map<std::string, std::size_t>& picked, std::span<const Assignment> all) {
  const auto& assignment = *left.assignment;
  refuse_classes(assignment);
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
                did_you_mean(nearest_key(assignment.key, keys_held(tree, options))));
}

void throw_unknown(const std::string& what, const std::string& where, const std::string& hint) {
  throw ConfigError("options",
                    {.what = "unknown " + what, .expected = {}, .got = {}, .where = where, .hint = hint});
}

}  // namespace lockstep
