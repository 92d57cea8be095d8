#include "train/callbacks/hook_list.h"

#include "train/logging/class_name.h"

namespace lockstep::detail {

Action HookList::action(const Target& target, std::string_view hook) {
  const std::pair key(static_cast<const Hooks*>(target.hooks), hook);
  const auto known = actions_.find(key);
  if (known != actions_.end()) return known->second;
  const Action action(hook_action_name(target.kind, class_name(*target.hooks), hook));
  return actions_.emplace(key, action).first->second;
}

}  // namespace lockstep::detail
