// The dotted keys of options, a visitor that knows the key of what it visits, and the errors for keys that no
// option has.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/option_codec.h>
#include <lockstep/base/option_visitor.h>

namespace lockstep {

/// The key below a choice that picks, besides the choice's own: `strategy: {name: ddp}`.
inline constexpr std::string_view kChoiceName = "name";

/// Behind the key of a list of objects: what follows is added to the list.
inline constexpr std::string_view kAppends = "+";

/// The entries of a map that names a class.
inline constexpr std::string_view kClassPath = "class_path";
inline constexpr std::string_view kInitArgs = "init_args";

/// `prefix.name`, or `name` without a prefix.
inline std::string joined_key(std::string_view prefix, std::string_view name) {
  if (prefix.empty()) return std::string(name);
  return std::string(prefix) + "." + std::string(name);
}

/// Whether `key` is `root` or lies below it.
inline bool is_at_or_below(std::string_view key, std::string_view root) {
  return key.starts_with(root) && (key.size() == root.size() || key[root.size()] == '.');
}

/// Base of the passes over options: tracks the path to the current group.
class KeyedVisitor : public OptionVisitor {
 public:
  void visit_group(std::string_view name, std::string_view, const Members& members) override {
    inside(name, [&] { members(*this); });
  }

 protected:
  std::string key(std::string_view name) const { return joined_key(prefix_, name); }

  template <class Visit>
  void inside(std::string_view name, const Visit& visit) {
    const auto outer = prefix_;
    prefix_ = key(name);
    visit();
    prefix_ = outer;
  }

 private:
  std::string prefix_;
};

class OptionTree;

/// An assignment that no option has taken, and its index among all assignments.
struct LeftOver {
  std::size_t index;
  const Assignment* assignment;
};

/// Returns if the assignment may be ignored: an empty group, or a member of an alternative that a later
/// source has replaced. `picked` has the key of each choice that was picked, with the index in `all` of the
/// assignment that picked it.
/// @throws ConfigError otherwise: the key is unknown, a group, below a value, or a member of another
/// alternative
void refuse_unknown(const OptionTree& tree, const LeftOver& left,
                    const std::map<std::string, std::size_t>& picked, std::span<const Assignment> all);

/// Where `assignment` was given: at that line and column of its file, unless the line is 0.
std::string place(const Assignment& assignment, int line, int column);

/// Whether `value` is a map or a list that names classes.
bool names_classes(const OptionText& value);

/// @throws ConfigError where `assignment` names classes, which no list of objects has taken
void refuse_classes(const Assignment& assignment);

/// `text` as YAML on one line, whose maps stay whole; the reason where it is none.
Expected<OptionText> read_yaml_value(const std::string& text);

/// Throws the error for a key, flag or variable called `what` that is no option.
[[noreturn]] void throw_unknown(const std::string& what, const std::string& where, const std::string& hint);

}  // namespace lockstep
