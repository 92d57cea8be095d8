#include "profilers/trace_file.h"

#include <cmath>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/profilers/profilers.h>
#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::detail {

using nlohmann::json;

json read_trace(const std::filesystem::path& file, const std::function<void(const json&)>& take) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("profilers", detail::unreadable_file(file));
  bool in_events = false;
  const auto keep = [&](int depth, json::parse_event_t part, json& parsed) {
    if (part == json::parse_event_t::key && depth == 1) in_events = parsed == "traceEvents";
    if (part != json::parse_event_t::object_end || depth != 2 || !in_events) return true;
    take(parsed);
    return false;
  };
  json rest;
  try {
    rest = json::parse(stream, keep);
  } catch (const json::exception& error) {
    refuse_trace(file, error.what());
  }
  if (!rest.is_object() || !rest.contains("traceEvents")) refuse_trace(file, "something else");
  return rest;
}

void refuse_trace(const std::filesystem::path& file, const std::string& got) {
  throw DataError("profilers", {.what = "'" + file.string() + "' is no trace",
                                .expected = "a JSON object with an array traceEvents",
                                .got = got});
}

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

}  // namespace

std::string trace_time(std::int64_t ns) {
  const auto size = ns < 0 ? -static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

TraceWriter::TraceWriter(FileWriter& file) : file_(file), buffer_("{\"traceEvents\":[") {}

void TraceWriter::add(std::string_view event) {
  buffer_.append(is_first_ ? "\n" : ",\n").append(event);
  is_first_ = false;
  if (buffer_.size() >= kBufferBytes) flush();
}

void TraceWriter::add_process(int pid, std::string_view name) {
  add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", pid,
                  json_string(name)));
  add(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", pid));
}

void TraceWriter::add_thread(int pid, int tid, std::string_view name) {
  add(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", pid, tid,
                  json_string(name)));
}

void TraceWriter::finish(const nlohmann::json& about) {
  buffer_ += "\n],\"displayTimeUnit\":\"ns\",\"otherData\":" + about.dump() + "}\n";
  flush();
}

void TraceWriter::flush() {
  file_.write(buffer_);
  buffer_.clear();
}

}  // namespace lockstep::detail

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
