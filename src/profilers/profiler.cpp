// Profiler and Action: the base of all profilers, and the registered names of what they measure.
#include <lockstep/profilers/profiler.h>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/format.h"
#include "profilers/report_table.h"

namespace lockstep {
namespace {

// Actions that start() has begun in this thread, of all profilers, also of destroyed ones, whose ids are not
// used again.
struct OpenAction {
  std::uint64_t profiler;
  Action action;
  Profiler::Clock::time_point begin;
};
thread_local std::vector<OpenAction> open_actions;

auto find_open(std::uint64_t profiler, Action action) {
  return std::ranges::find_if(open_actions, [&](const OpenAction& open) {
    return open.profiler == profiler && open.action == action;
  });
}

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

Profiler::Profiler(ProfilerFile file) : file_(std::move(file)), id_(next_id()) {}

Profiler::~Profiler() = default;

void Profiler::start(Action action) {
  if (find_open(id_, action) != open_actions.end()) {
    throw ConfigError("profilers",
                      {.what = "Attempted to start " + action.name() + " which has already started.",
                       .hint = "scopes of profile() may nest"});
  }
  open_actions.push_back({id_, action, {}});
  open_actions.back().begin = Clock::now();
}

void Profiler::stop(Action action) {
  const auto end = Clock::now();
  const auto open = find_open(id_, action);
  if (open == open_actions.end()) {
    throw ConfigError("profilers", {.what = "Attempting to stop recording an action (" + action.name() +
                                            ") which was never started.",
                                    .hint = "start() and stop() belong in one thread"});
  }
  const auto begin = open->begin;
  open_actions.erase(open);
  record(action, begin, end);
}

void Profiler::setup(std::string stage, std::optional<int> rank, std::filesystem::path log_dir) {
  stage_ = std::move(stage);
  rank_ = rank;
  if (file_.dirpath.empty()) file_.dirpath = std::move(log_dir);
}

void Profiler::describe() noexcept {
  try {
    report();
  } catch (const std::exception& error) {
    log_warning(std::string("the profiler's report is lost: ") + error.what());
  }
}

void Profiler::report() {
  const auto text = summary();
  if (text.empty()) return;
  if (!file_.filename.empty() && !file_.dirpath.empty()) {
    detail::append_to_file(file_path(".txt"), text);
  } else if (rank() == 0) {
    log_info(text);
  }
}

std::string Profiler::heading() const {
  return (stage_ ? upper_case(*stage_) + " " : "") + "Profiler Report";
}

std::filesystem::path Profiler::file_path(std::string_view extension) const {
  return file_.dirpath / detail::report_file_name(stage_, file_.filename, rank_, extension);
}

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
