#include "formats/strict_json.h"

#include <set>
#include <string>
#include <vector>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepest = 64;

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw CheckpointError("checkpoint", {.what = place + " is no JSON that can be used", .got = why});
}

// Sees the text's parts one after the other, before anything is made of them.
class Watch {
 public:
  explicit Watch(const std::string& place) : place_(place) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kDeepest) refuse(place_, "nested deeper than " + std::to_string(kDeepest));
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key && !keys_.back().insert(parsed.get<std::string>()).second)
      refuse(place_, "the key " + parsed.dump() + " twice");
    return true;
  }

 private:
  const std::string& place_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

Json parse_strictly(std::string_view text, const std::string& place) try {
  Watch watch(place);
  return Json::parse(
      text, [&](int depth, Json::parse_event_t event, Json& parsed) { return watch(depth, event, parsed); });
} catch (const Json::parse_error& error) {
  refuse(place, error.what());
}

}  // namespace lockstep::detail
