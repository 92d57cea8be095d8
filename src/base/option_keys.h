// The dotted keys of options, and a visitor that knows the key of what it visits.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/base/option_visitor.h>

namespace lockstep {

/// The key below a choice that picks, besides the choice's own: `strategy: {name: ddp}`.
inline constexpr std::string_view kChoiceName = "name";

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

}  // namespace lockstep
