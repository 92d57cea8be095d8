#include "profilers/trace_file.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>

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
