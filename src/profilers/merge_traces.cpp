#include <lockstep/profilers/merge_traces.h>

#include <cmath>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <nlohmann/json.hpp>

#include "profilers/trace_file.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr double kLatest = 4e15;  // us: nanoseconds of any offset still fit

// The event's own number is microseconds; ours come back to the nanosecond.
std::string moved(const json& event, const RankTrace& rank) {
  json changed = event;
  changed["pid"] = rank.rank;
  const auto time = changed.find("ts");
  if (time == changed.end()) return changed.dump();
  const double us = time->get<double>();
  if (!(std::abs(us) < kLatest)) detail::refuse_trace(rank.file, "an event at " + time->dump() + " us");
  const auto ns = std::llround(us * 1000) + rank.offset.count();
  changed.erase(time);
  auto text = changed.dump();
  text.insert(1, "\"ts\":" + detail::trace_time(ns) + ",");
  return text;
}

/// Returns how many events the rank dropped.
std::uint64_t add_rank(detail::TraceWriter& writer, const RankTrace& rank) {
  const auto rest = detail::read_trace(rank.file, [&](const json& event) { writer.add(moved(event, rank)); });
  const auto dropped = rest.value(json::json_pointer("/otherData/dropped_events"), json(0));
  return dropped.is_number_unsigned() ? dropped.get<std::uint64_t>() : 0;
}

}  // namespace

void merge_traces(std::span<const RankTrace> ranks, const std::filesystem::path& output) {
  write_file_atomically(output, [&](FileWriter& file) {
    detail::TraceWriter writer(file);
    std::uint64_t dropped = 0;
    for (const auto& rank : ranks) dropped += add_rank(writer, rank);
    writer.finish({{"ranks", ranks.size()}, {"dropped_events", dropped}});
  });
}

}  // namespace lockstep
