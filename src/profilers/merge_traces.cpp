#include <lockstep/profilers/merge_traces.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <nlohmann/json.hpp>

#include "profilers/trace_writer.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr double kLatest = 4e15;  // us: nanoseconds of any offset still fit

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& got) {
  throw DataError("profilers", {.what = "'" + file.string() + "' is no trace",
                                .expected = "a JSON object with an array traceEvents",
                                .got = got});
}

/// Calls `take` for each event and keeps none; returns the rest of the file.
json read_events(const std::filesystem::path& file, const std::function<void(json&)>& take) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("profilers", {.what = "cannot read '" + file.string() + "'"});
  bool in_events = false;
  const auto keep = [&](int depth, json::parse_event_t part, json& parsed) {
    if (part == json::parse_event_t::key && depth == 1) in_events = parsed == "traceEvents";
    if (part != json::parse_event_t::object_end || depth != 2 || !in_events) return true;
    take(parsed);
    return false;
  };
  try {
    return json::parse(stream, keep);
  } catch (const json::exception& error) {
    refuse(file, error.what());
  }
}

// The event's own number is microseconds; ours come back to the nanosecond.
std::string moved(const json& event, const RankTrace& rank) {
  json changed = event;
  changed["pid"] = rank.rank;
  const auto time = changed.find("ts");
  if (time == changed.end()) return changed.dump();
  const double us = time->get<double>();
  if (!(std::abs(us) < kLatest)) refuse(rank.file, "an event at " + time->dump() + " us");
  const auto ns = std::llround(us * 1000) + rank.offset.count();
  changed.erase(time);
  auto text = changed.dump();
  text.insert(1, "\"ts\":" + detail::trace_time(ns) + ",");
  return text;
}

/// Returns how many events the rank dropped.
std::uint64_t add_rank(detail::TraceWriter& writer, const RankTrace& rank) {
  const auto rest = read_events(rank.file, [&](const json& event) { writer.add(moved(event, rank)); });
  if (!rest.is_object() || !rest.contains("traceEvents")) refuse(rank.file, "something else");
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
