// The names of what a profiler measures, each registered once per process, so that an event carries a number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// What kind of work an action is; time lines colour and filter by it.
enum class ActionCategory : std::uint8_t { kHook, kCollective, kOperator, kData, kCheckpoint };

/// The name of `category` in files: "hook", "collective", "operator", "data", "checkpoint".
LOCKSTEP_API std::string_view category_name(ActionCategory category);

namespace detail {

struct ActionInfo {
  std::string name;
  ActionCategory category;
  std::uint32_t index;
};

}  // namespace detail

/// A name under which time is measured. Making one takes a lock and looks the name up: keep it, as in
/// `static const Action kBackward("[Strategy]DdpStrategy.backward");`. A copy is a pointer. Names are kept
/// until the process ends: an action per batch would fill the memory.
class LOCKSTEP_API Action {
 public:
  /// The action called `name` (UTF-8). The category counts the first time that a name is given. Thread-safe.
  explicit Action(std::string_view name, ActionCategory category = ActionCategory::kHook);

  const std::string& name() const { return info_->name; }
  ActionCategory category() const { return info_->category; }
  /// Its place in all().
  std::uint32_t index() const { return info_->index; }

  /// All that were made in this process, in that order. Thread-safe.
  static std::vector<Action> all();

  friend bool operator==(Action, Action) = default;

 private:
  friend class ProfileScope;
  Action() = default;
  explicit Action(const detail::ActionInfo* info) : info_(info) {}

  const detail::ActionInfo* info_ = nullptr;  // lives as long as the process
};

/// Lightning's name of a hook: `[KIND]OWNER.HOOK`, such as `[Strategy]DdpStrategy.backward`.
LOCKSTEP_API std::string hook_action_name(std::string_view kind, std::string_view owner,
                                          std::string_view hook);

}  // namespace lockstep
