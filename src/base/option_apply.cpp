// The pass that writes assignments into options.
#include <algorithm>
#include <map>

#include <lockstep/base/error.h>
#include <lockstep/base/nearest.h>
#include <lockstep/base/options.h>

#include "base/option_keys.h"
#include "base/option_unknown.h"

namespace lockstep {
namespace {

std::string place(const Assignment& assignment, int line, int column) {
  if (line == 0) return shown(assignment.source);
  auto source = assignment.source;
  source.line = line;
  source.column = column;
  return shown(source);
}

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

  /// What no member has taken.
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
  std::vector<std::size_t> take(const std::string& path) {
    const auto found = by_key_.find(path);
    if (found == by_key_.end()) return {};
    auto indices = std::move(found->second);
    by_key_.erase(found);
    return indices;
  }

  // The entries of a map were read as options below it: those of one file are one value again.
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

  // A file's null leaves a member that has no such value at its default, whatever was given before, as
  // LightningCLI's own files mean it.
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
