// TraceProfiler: a time line for Perfetto (https://ui.perfetto.dev) or chrome://tracing.
#include <lockstep/profilers/profilers.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <lockstep/base/atomic_file.h>
#include <lockstep/base/log.h>
#include <nlohmann/json.hpp>

#include "base/system.h"
#include "profilers/call_records.h"
#include "profilers/trace_file.h"

namespace lockstep {

using detail::EventRing;
using detail::TraceEvent;
using detail::TraceWriter;

namespace {

/// Facts about the file that was written last.
struct Written {
  std::filesystem::path file = {};
  std::uint64_t events = 0;
  std::uint64_t dropped = 0;  ///< before them
};

}  // namespace

struct TraceProfiler::State {
  explicit State(std::size_t capacity)
      : rings([capacity] { return std::make_unique<EventRing>(capacity); }) {}

  void push(const TraceEvent& event) noexcept {
    if (auto* const ring = rings.local()) {
      ring->push(event);
    } else {
      lost.fetch_add(1, std::memory_order_relaxed);
    }
  }

  detail::PerThread<EventRing> rings;
  std::atomic<std::uint64_t> lost{0};  // events of threads that could have no ring

  mutable std::mutex mutex;  // guards what follows
  Written last;
};

namespace {

std::int64_t ns_of(Profiler::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

struct Track {
  std::string thread;
  EventRing::Taken taken;
};

// Viewers nest calls that begin at once by their order: the longer first.
void sort_by_begin(std::vector<TraceEvent>& events) {
  std::ranges::stable_sort(events, [](const TraceEvent& a, const TraceEvent& b) {
    if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
    return a.kind == TraceEvent::Kind::kCall && b.kind == TraceEvent::Kind::kCall && a.value > b.value;
  });
}

// `"name":NAME,"cat":CATEGORY` of each action.
std::vector<std::string> labels() {
  std::vector<std::string> labels;
  for (const Action action : Action::all()) {
    labels.push_back(fmt::format(R"("name":{},"cat":"{}")", detail::json_string(action.name()),
                                 category_name(action.category())));
  }
  return labels;
}

std::string event_text(const TraceEvent& event, int pid, int tid, const std::string& label) {
  const auto time = detail::trace_time(event.begin_ns);
  if (event.kind == TraceEvent::Kind::kCounter) {
    return fmt::format(R"({{"ph":"C","pid":{},"ts":{},{},"args":{{"value":{}}}}})", pid, time, label,
                       std::bit_cast<double>(event.value));
  }
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},{}}})", pid, tid, time,
                     detail::trace_time(event.value), label);
}

std::string process_name(int rank) {
  return fmt::format("rank {} ({}, process {})", rank, detail::host_name(), ::getpid());
}

// Returns the number of tracks.
int write_tracks(TraceWriter& writer, std::span<const Track> tracks, int rank) {
  writer.add_process(rank, process_name(rank));
  const auto label = labels();
  int tid = 0;
  for (const auto& [thread, taken] : tracks) {
    writer.add_thread(rank, ++tid, thread);
    for (const auto& event : taken.events) writer.add(event_text(event, rank, tid, label[event.action]));
  }
  return tid;
}

// `OtherEvent` is the profiler's own type. Each track has one number, from `tid` on.
template <class OtherEvent>
void write_others(TraceWriter& writer, std::vector<OtherEvent> events, int rank, int tid) {
  std::ranges::stable_sort(events, [](const OtherEvent& a, const OtherEvent& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.duration_ns > b.duration_ns;
  });
  std::map<std::string, int> tracks;
  for (const auto& event : events) tracks.emplace(event.track, 0);
  for (auto& [name, number] : tracks) writer.add_thread(rank, number = ++tid, name);
  for (const auto& event : events) {
    writer.add(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":{}}})", rank,
                           tracks.at(event.track), detail::trace_time(event.begin_ns),
                           detail::trace_time(event.duration_ns), detail::json_string(event.name),
                           detail::json_string(event.category)));
  }
}

}  // namespace

TraceProfiler::TraceProfiler(TraceProfilerOptions options)
    : Profiler({.dirpath = std::move(options.dirpath), .filename = std::move(options.filename)}),
      state_(std::make_unique<State>(options.events_per_thread)) {}

TraceProfiler::~TraceProfiler() = default;

void TraceProfiler::record(Action action, Clock::time_point begin, Clock::time_point end) noexcept {
  state_->push({.begin_ns = ns_of(begin.time_since_epoch()),
                .value = ns_of(std::max(end - begin, Clock::duration(0))),
                .action = action.index(),
                .kind = TraceEvent::Kind::kCall});
}

void TraceProfiler::count(Action counter, double value) noexcept {
  if (!std::isfinite(value)) return;
  state_->push({.begin_ns = ns_of(Clock::now().time_since_epoch()),
                .value = std::bit_cast<std::int64_t>(value),
                .action = counter.index(),
                .kind = TraceEvent::Kind::kCounter});
}

std::filesystem::path TraceProfiler::write() {
  const std::lock_guard lock(state_->mutex);
  std::vector<Track> tracks;
  state_->rings.for_each([&](const std::string& thread, EventRing& ring) {
    tracks.push_back({thread, ring.take()});
    sort_by_begin(tracks.back().taken.events);
  });
  auto others = take_other_events();
  Written written{.file = file_path(".json"),
                  .events = others.size(),
                  .dropped = state_->lost.exchange(0, std::memory_order_relaxed)};
  for (const auto& [thread, taken] : tracks) {
    written.events += taken.events.size();
    written.dropped += taken.dropped;
  }
  if (written.file.has_parent_path()) std::filesystem::create_directories(written.file.parent_path());
  write_file_atomically(written.file, [&](FileWriter& file) {
    TraceWriter writer(file);
    const int tid = write_tracks(writer, tracks, rank());
    write_others(writer, std::move(others), rank(), tid);
    writer.finish({{"rank", rank()}, {"dropped_events", written.dropped}, {"clock", "CLOCK_MONOTONIC"}});
  });
  state_->last = std::move(written);
  return state_->last.file;
}

std::filesystem::path TraceProfiler::last_file() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last.file;
}

void TraceProfiler::report() {
  write();
  if (state_->last.dropped > 0) {
    log_warning(summary());
  } else if (rank() == 0) {
    log_info(summary());
  }
}

std::string TraceProfiler::summary() const {
  const std::lock_guard lock(state_->mutex);
  const auto& last = state_->last;
  const auto title = heading() + "\n\n";
  if (last.file.empty()) return title + "no trace was written yet\n";
  return title + fmt::format("{}: {} events, {} older ones dropped{}\n", last.file.string(), last.events,
                             last.dropped, last.dropped > 0 ? "; events_per_thread can be raised" : "");
}

}  // namespace lockstep
