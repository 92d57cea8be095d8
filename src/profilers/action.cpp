#include <lockstep/profilers/action.h>

#include <pthread.h>

#include <deque>
#include <map>
#include <mutex>

namespace lockstep {
namespace {

// One lock, held over fork, so that no child starts with a lock that nobody will release.
struct Registry {
  std::mutex mutex;
  std::deque<detail::ActionInfo> actions;  // a deque: addresses stay
  std::map<std::string_view, const detail::ActionInfo*> by_name;
};

Registry& the_registry() {
  static Registry* const registry = [] {
    auto* made = new Registry;  // never destroyed: threads may measure until the very end
    pthread_atfork([] { the_registry().mutex.lock(); }, [] { the_registry().mutex.unlock(); },
                   [] { the_registry().mutex.unlock(); });
    return made;
  }();
  return *registry;
}

// Made when the library is loaded: a fork while another thread makes it would leave the child waiting.
[[maybe_unused]] const Registry& made_at_load = the_registry();

const detail::ActionInfo* registered(std::string_view name, ActionCategory category) {
  auto& registry = the_registry();
  const std::lock_guard lock(registry.mutex);
  const auto known = registry.by_name.find(name);
  if (known != registry.by_name.end()) return known->second;
  const auto index = static_cast<std::uint32_t>(registry.actions.size());
  const auto& made = registry.actions.emplace_back(detail::ActionInfo{std::string(name), category, index});
  registry.by_name.emplace(made.name, &made);
  return &made;
}

}  // namespace

std::string_view category_name(ActionCategory category) {
  switch (category) {
    case ActionCategory::kHook:
      return "hook";
    case ActionCategory::kCollective:
      return "collective";
    case ActionCategory::kOperator:
      return "operator";
    case ActionCategory::kData:
      return "data";
    case ActionCategory::kCheckpoint:
      break;
  }
  return "checkpoint";
}

Action::Action(std::string_view name, ActionCategory category) : info_(registered(name, category)) {}

std::vector<Action> Action::all() {
  auto& registry = the_registry();
  const std::lock_guard lock(registry.mutex);
  std::vector<Action> actions;
  for (const auto& info : registry.actions) actions.push_back(Action(&info));
  return actions;
}

std::string hook_action_name(std::string_view kind, std::string_view owner, std::string_view hook) {
  return "[" + std::string(kind) + "]" + std::string(owner) + "." + std::string(hook);
}

}  // namespace lockstep
