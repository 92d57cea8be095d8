#include "profilers/trace_reader.h"

#include <fstream>

#include <lockstep/base/error.h>

namespace lockstep::detail {

using nlohmann::json;

json read_trace(const std::filesystem::path& file, const std::function<void(const json&)>& take) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("profilers", {.what = "cannot read '" + file.string() + "'"});
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

}  // namespace lockstep::detail
