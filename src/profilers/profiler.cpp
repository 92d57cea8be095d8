#include <lockstep/profilers/profiler.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/format.h"
#include "profilers/report_table.h"

namespace lockstep {
namespace {

// What start() began in this thread, of all profilers, also of some that are gone: their numbers do not
// return.
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

}  // namespace lockstep
