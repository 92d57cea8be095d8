// Reads where the time of a run went from the tables and time lines of profilers.
#include "report/run_files.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "profilers/trace_file.h"

namespace lockstep::detail {
namespace {

/// Sweeps over the calls of a thread, with a stack of the open ones.
class Sweep {
 public:
  void begin(const Call& call) {
    advance(call.begin_us);
    const bool is_inner = !open_.empty();
    const auto outer = is_inner ? open_.back() : call;
    open_.push_back({.begin_us = call.begin_us,
                     .end_us = std::min(call.end_us, outer.end_us),
                     .phase = outer.phase == Phase::kCompute ? call.phase : outer.phase});
  }

  void advance(double until_us) {
    while (!open_.empty() && open_.back().end_us <= until_us) {
      count(open_.back().end_us);
      open_.pop_back();
    }
    count(until_us);
  }

  const std::array<double, kPhases>& us() const { return us_; }

 private:
  void count(double until_us) {
    if (!open_.empty()) us_[static_cast<std::size_t>(open_.back().phase)] += until_us - now_us_;
    now_us_ = until_us;
  }

  std::vector<Call> open_;
  std::array<double, kPhases> us_ = {};
  double now_us_ = 0;
};

}  // namespace

Phase phase_of(std::string_view category, std::string_view name) {
  if (category == "collective") return Phase::kCommunication;
  if (category == "checkpoint") return Phase::kCheckpoint;
  const bool fetches = name.ends_with("dataloader_next") || name.ends_with(".val_next") ||
                       name.ends_with(".test_next") || name.ends_with(".predict_next");
  return category == "data" || fetches ? Phase::kData : Phase::kCompute;
}

PhaseTimes phase_times(std::vector<Call> calls) {
  if (calls.empty()) return {};
  std::ranges::sort(calls, [](const Call& a, const Call& b) {
    return a.begin_us != b.begin_us ? a.begin_us < b.begin_us : a.end_us > b.end_us;
  });
  const double last_us = std::ranges::max(calls, {}, &Call::end_us).end_us;
  Sweep sweep;
  for (const auto& call : calls) sweep.begin(call);
  sweep.advance(last_us);
  return {.us = sweep.us(), .span_us = last_us - calls.front().begin_us};
}

namespace {

using nlohmann::json;

/// What a device did, by PyTorchProfiler, in us.
struct DeviceTimes {
  double first = std::numeric_limits<double>::max(), last = 0;
  double kernels = 0, copies = 0, collectives = 0;

  double span() const { return std::max(0.0, last - first); }
};

// Where times of that category are added up; null for those of the host.
double DeviceTimes::*device_time_of(std::string_view category) {
  if (category == "kernel") return &DeviceTimes::kernels;
  if (category == "copy") return &DeviceTimes::copies;
  if (category == "device collective") return &DeviceTimes::collectives;
  return nullptr;
}

// LibTorch's own events of the host, which lie within the actions that count.
bool is_of_library(std::string_view category) {
  return category == "libtorch" || category == "runtime" || category == "device";
}

/// The data of one rank in one stage of a trace.
struct TracedRank {
  std::map<int, std::vector<Call>> threads = {};
  std::map<std::string, std::vector<double>> arrivals = {};  // us, by the collective's name
  std::string clock = {};                                    // times of one clock can be compared
  std::uint64_t dropped = 0;
  DeviceTimes device = {};
};

using Ranks = std::map<int, TracedRank>;

// `rank 0 (HOST, process 17)`
std::string host_in(const std::string& process_name) {
  const auto begin = process_name.find('(') + 1;
  return process_name.substr(begin, process_name.find(", process", begin) - begin);
}

void take(const json& event, Ranks& ranks) {
  const auto& kind = event.at("ph").get_ref<const std::string&>();
  if (kind == "M" && event.at("name") == "process_name") {
    ranks[event.at("pid").get<int>()].clock = host_in(event.at("args").at("name").get<std::string>());
  }
  if (kind != "X") return;
  auto& rank = ranks[event.at("pid").get<int>()];
  const auto& name = event.at("name").get_ref<const std::string&>();
  if (name == "run_training_epoch") return;  // has all of the steps in it, and what is between them
  const double begin_us = event.at("ts").get<double>();
  const double end_us = begin_us + std::max(0.0, event.at("dur").get<double>());
  const auto category = event.value("cat", "");
  if (is_of_library(category)) return;
  if (const auto time = device_time_of(category)) {
    rank.device.*time += end_us - begin_us;
    rank.device.first = std::min(rank.device.first, begin_us);
    rank.device.last = std::max(rank.device.last, end_us);
    return;
  }
  const auto phase = phase_of(category, name);
  rank.threads[event.value("tid", 0)].push_back({.begin_us = begin_us, .end_us = end_us, .phase = phase});
  if (phase == Phase::kCommunication) rank.arrivals[name].push_back(begin_us);
}

Ranks read_ranks(const std::filesystem::path& file) {
  Ranks ranks;
  const auto rest = read_trace(file, [&](const json& event) { take(event, ranks); });
  const auto about = rest.value("otherData", json::object());
  if (!about.is_object()) refuse_trace(file, "other data that is no object");
  const auto dropped = about.value("dropped_events", json(0));
  for (auto& [number, rank] : ranks) {
    if (about.contains("ranks")) rank.clock = "of the merged file";
    if (dropped.is_number_unsigned()) rank.dropped = dropped.get<std::uint64_t>();
  }
  std::erase_if(ranks, [](const auto& rank) { return rank.second.threads.empty(); });
  return ranks;
}

// The main thread is the one that computes most.
RankTimes rank_times(int number, const TracedRank& rank) {
  std::vector<PhaseTimes> threads;
  for (const auto& [thread, calls] : rank.threads) threads.push_back(phase_times(calls));
  const auto main = std::ranges::max_element(
      threads, {}, [](const PhaseTimes& times) { return std::pair(times[Phase::kCompute], times.span_us); });
  double communication_us = 0;
  for (const auto& times : threads) communication_us += times[Phase::kCommunication];
  const auto seconds = [](double us) { return us * 1e-6; };
  return {.rank = number,
          .span_s = seconds(main->span_us),
          .compute_s = seconds((*main)[Phase::kCompute]),
          .communication_s = seconds((*main)[Phase::kCommunication]),
          .data_s = seconds((*main)[Phase::kData]),
          .checkpoint_s = seconds((*main)[Phase::kCheckpoint]),
          .background_communication_s = seconds(communication_us - (*main)[Phase::kCommunication]),
          .dropped_events = rank.dropped,
          .device_span_s = seconds(rank.device.span()),
          .device_kernels_s = seconds(rank.device.kernels),
          .device_copies_s = seconds(rank.device.copies),
          .device_collectives_s = seconds(rank.device.collectives)};
}

/// The times at which ranks arrived at the collectives that all of them called. A trace may lack the oldest
/// ones, so that they are counted from the end.
class Arrivals {
 public:
  void add(const std::vector<std::pair<int, const std::vector<double>*>>& of_ranks) {
    std::size_t common = of_ranks.front().second->size();
    for (const auto& [rank, times] : of_ranks) common = std::min(common, times->size());
    for (std::size_t back = 1; back <= common; ++back) {
      double first = of_ranks.front().second->end()[-static_cast<std::ptrdiff_t>(back)];
      auto last = std::pair(first, of_ranks.front().first);
      for (const auto& [rank, times] : of_ranks) {
        const double time = times->end()[-static_cast<std::ptrdiff_t>(back)];
        first = std::min(first, time);
        if (time > last.first) last = {time, rank};
      }
      spreads_us_.push_back(last.first - first);
      ++last_[last.second];
    }
  }

  std::optional<ArrivalSkew> skew() {
    if (spreads_us_.empty()) return std::nullopt;
    std::ranges::sort(spreads_us_);
    const auto& [rank, times] =
        *std::ranges::max_element(last_, {}, [](const auto& last) { return last.second; });
    return ArrivalSkew{
        .collectives = spreads_us_.size(),
        .median_s = quantile_s(0.5),
        .p90_s = quantile_s(0.9),
        .last_rank = rank,
        .last_rank_share = static_cast<double>(times) / static_cast<double>(spreads_us_.size())};
  }

 private:
  double quantile_s(double share) const {
    return 1e-6 *
           spreads_us_[static_cast<std::size_t>(share * static_cast<double>(spreads_us_.size() - 1) + 0.5)];
  }

  std::vector<double> spreads_us_;
  std::map<int, std::uint64_t> last_;  // how often each rank came last
};

std::optional<ArrivalSkew> skew_of(Ranks& ranks) {
  auto& first = ranks.begin()->second;
  const bool comparable =
      std::ranges::all_of(ranks, [&](const auto& rank) { return rank.second.clock == first.clock; });
  if (ranks.size() < 2 || !comparable) return std::nullopt;
  for (auto& [number, rank] : ranks) {
    for (auto& [name, times] : rank.arrivals) std::ranges::sort(times);
  }
  Arrivals arrivals;
  for (const auto& [name, unused] : first.arrivals) {
    std::vector<std::pair<int, const std::vector<double>*>> of_ranks;
    for (const auto& [number, rank] : ranks) {
      const auto found = rank.arrivals.find(name);
      if (found != rank.arrivals.end()) of_ranks.emplace_back(number, &found->second);
    }
    if (of_ranks.size() == ranks.size()) arrivals.add(of_ranks);
  }
  return arrivals.skew();
}

// STAGE-FILENAME-RANK.json
std::string stage_of(const std::filesystem::path& file) {
  const auto stem = file.stem().string();
  return stem.substr(0, stem.find('-'));
}

}  // namespace

std::vector<StageTimes> read_trace_times(std::span<const std::filesystem::path> files) {
  std::map<std::string, Ranks> stages;
  for (const auto& file : files) stages[stage_of(file)].merge(read_ranks(file));
  std::vector<StageTimes> times;
  for (auto& [stage, ranks] : stages) {
    if (ranks.empty()) continue;
    times.push_back({.stage = stage, .skew = skew_of(ranks)});
    for (const auto& [number, rank] : ranks) times.back().ranks.push_back(rank_times(number, rank));
  }
  return times;
}

bool is_trace(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string begin(16, '\0');
  stream.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return stream.gcount() == 16 && begin == "{\"traceEvents\":[";
}

namespace {

// `|  Action  |  12  |` as its cells.
std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  line.remove_prefix(1);
  for (auto bar = line.find('|'); bar != std::string_view::npos; bar = line.find('|')) {
    cells.push_back(trimmed(line.substr(0, bar), " \t\r"));
    line.remove_prefix(bar + 1);
  }
  return cells;
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Which columns hold what, counted from the last one: a name may have a bar in it.
class ColumnPlaces {
 public:
  explicit ColumnPlaces(const std::vector<std::string_view>& header)
      : total_(place(header, "Total time (s)")), calls_(place(header, "Num calls")), count_(header.size()) {}

  std::optional<ProfiledAction> action(std::string_view line) const {
    const auto cells = cells_of(line);
    if (cells.size() < count_ || total_ == 0) return std::nullopt;
    const auto total = number<double>(cells[cells.size() - total_]);
    if (!total || cells[0] == "Total") return std::nullopt;
    const auto& last_of_name = cells[cells.size() - count_];
    const std::string name(cells[0].data(), last_of_name.data() + last_of_name.size());
    const auto calls = calls_ == 0 ? std::nullopt : number<std::int64_t>(cells[cells.size() - calls_]);
    return ProfiledAction{.name = name, .total_s = *total, .calls = calls};
  }

 private:
  static std::size_t place(const std::vector<std::string_view>& header, std::string_view name) {
    return static_cast<std::size_t>(header.end() - std::ranges::find(header, name));
  }

  std::size_t total_;
  std::size_t calls_;
  std::size_t count_;
};

}  // namespace

std::vector<ProfiledAction> read_profiler_table(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("report", {.what = "cannot read " + file.string()});
  std::vector<ProfiledAction> actions;
  std::optional<ColumnPlaces> columns;
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with('|')) continue;
    const auto cells = cells_of(line);
    if (!cells.empty() && cells[0] == "Action") {
      columns.emplace(cells);
      actions.clear();
    } else if (columns) {
      if (auto action = columns->action(line)) actions.push_back(std::move(*action));
    }
  }
  std::ranges::stable_sort(actions, std::greater(), &ProfiledAction::total_s);
  return actions;
}

}  // namespace lockstep::detail
