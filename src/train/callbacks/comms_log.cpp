#include "train/callbacks/comms_log.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMostKept = 10'000;  // latencies of a row

// DeepSpeed's convert_size.
std::string size_text(std::int64_t bytes) {
  if (bytes == 0) return "0B";
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  auto text = number_text(std::round(size * 100) / 100);
  if (text.find('.') == std::string::npos) text += ".0";  // as Python prints a float
  return text + " " + kUnits[unit];
}

// Without the tenth at either end.
double trimmed_mean(std::vector<float> values) {
  std::ranges::sort(values);
  const auto cut = static_cast<std::ptrdiff_t>(std::lround(static_cast<double>(values.size()) * 0.1));
  const auto begin = values.begin() + cut, end = values.end() - cut;
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

struct Bandwidth {
  double algorithm_gbps;
  double bus_gbps;
};

// DeepSpeed's calc_bw_log, after NCCL's tests.
Bandwidth bandwidth(const std::string& name, std::int64_t bytes, double milliseconds, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  const double gbps = static_cast<double>(bytes) * 8 / (milliseconds * 1e6);
  if (name == "all_gather" || name == "reduce_scatter") return {gbps * ranks, gbps * ranks * share};
  if (name == "all_reduce") return {2 * gbps, 2 * gbps * share};
  if (name == "all_to_all") return {gbps, gbps * share};
  return {gbps, gbps};
}

std::string padded(std::string text) {
  text.resize(std::max<std::size_t>(text.size(), 20), ' ');
  return text;
}

template <class... Texts>
std::string table_line(const Texts&... texts) {
  std::string line = (padded(texts) + ...);
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::vector<bool> wanted_kinds(const deepspeed::CommsLogger& options) {
  std::vector<bool> wanted;
  for (const std::string name : collective_names())
    wanted.push_back(options.prof_all || std::ranges::find(options.prof_ops, name) != options.prof_ops.end());
  return wanted;
}

}  // namespace

CommsLog::CommsLog(deepspeed::CommsLogger options)
    : options_(std::move(options)), counts_(wanted_kinds(options_)) {
  for (const auto& name : options_.prof_ops) {
    if (std::ranges::find(collective_names(), name) != collective_names().end()) continue;
    const std::vector<std::string> names(collective_names().begin(), collective_names().end());
    throw ConfigError("deepspeed", {.what = "comms_logger.prof_ops",
                                    .expected = "names out of " + lockstep::joined(names),
                                    .got = '"' + name + '"'});
  }
}

void CommsLog::on_train_start(TrainContext&) { scope_.emplace(static_cast<CollectiveObserver&>(*this)); }

void CommsLog::on_collective(const CollectiveEvent& event) noexcept {
  if (!counts_[event.kind]) return;
  const std::chrono::duration<double, std::milli> time = event.end - event.begin;
  const std::lock_guard lock(mutex_);
  calls_.push_back({.kind = event.kind, .bytes = event.bytes, .milliseconds = time.count()});
}

void CommsLog::take(const TrainContext& context) {
  std::vector<Call> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const auto& [kind, bytes, milliseconds] : calls) {
    const std::string name = collective_names()[kind];
    auto& row = rows_[name][bytes];
    if (row.latest_ms.size() < kMostKept) {
      row.latest_ms.push_back(static_cast<float>(milliseconds));
    } else {
      row.latest_ms[static_cast<std::size_t>(row.count) % kMostKept] = static_cast<float>(milliseconds);
    }
    ++row.count;
    row.total_ms += milliseconds;
    if (!options_.verbose) continue;
    const auto [algorithm, bus] = bandwidth(name, bytes, milliseconds, context.world_size());
    context.print("[Rank 0] comm op: " + name + " | time (ms): " + two_digits(milliseconds) +
                  " | msg size: " + size_text(bytes) + " | algbw (Gbps): " + two_digits(algorithm) +
                  " | busbw (Gbps): " + two_digits(bus));
  }
}

void CommsLog::print_table(const TrainContext& context) const {
  context.print(table_line("Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)",
                           "tput_avg (Gbps)", "busbw_avg (Gbps)"));
  for (const auto& [name, sizes] : rows_) {
    context.print(name);
    for (const auto& [bytes, row] : sizes) {
      const auto mean = trimmed_mean(row.latest_ms);
      const auto [algorithm, bus] = bandwidth(name, bytes, mean, context.world_size());
      context.print(table_line(" ", size_text(bytes), std::to_string(row.count), two_digits(row.total_ms),
                               two_digits(mean), two_digits(algorithm), two_digits(bus)));
    }
  }
}

void CommsLog::on_train_batch_end(StepContext& step, const TrainOutput&) { take(step); }

void CommsLog::on_train_end(TrainContext& context) {
  scope_.reset();
  take(context);
  print_table(context);
}

void CommsLog::on_exception(TrainContext&, const std::exception&) { scope_.reset(); }

}  // namespace lockstep::detail
