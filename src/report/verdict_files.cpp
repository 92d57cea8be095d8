#include "report/verdict_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>

#include <lockstep/base/error.h>
#include <nlohmann/json.hpp>

namespace lockstep::detail {
namespace {

using nlohmann::json;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("report", {.what = "cannot read " + file.string()});
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// An object in a file, which may be anybody's.
class JsonObject {
 public:
  explicit JsonObject(const std::filesystem::path& file) : file_(file.string()) {
    const auto text = text_of(file);
    try {
      object_ = json::parse(text);
    } catch (const json::parse_error& error) {
      const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
      refuse("is no JSON", error.what(), ":" + std::to_string(1 + std::count(text.begin(), end, '\n')));
    }
    if (!object_.is_object()) refuse("holds no object", object_.type_name(), ":1");
  }

  /// The value of `key`; a default one when there is none, or null.
  template <class T>
  T get(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return {};
    try {
      return found->get<T>();
    } catch (const json::exception& error) {
      refuse("has a '" + std::string(key) + "' of another type", error.what());
    }
  }

  template <class T>
  std::optional<T> find(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return std::nullopt;
    return get<T>(key);
  }

  /// The objects in the array `key`.
  std::vector<JsonObject> objects(const char* key) const {
    std::vector<JsonObject> objects;
    for (auto& object : get<std::vector<json>>(key)) {
      if (!object.is_object())
        refuse("has a '" + std::string(key) + "' with other things", object.type_name());
      objects.push_back(JsonObject(file_, std::move(object)));
    }
    return objects;
  }

 private:
  JsonObject(std::string file, json object) : file_(std::move(file)), object_(std::move(object)) {}

  [[noreturn]] void refuse(const std::string& why, const std::string& got,
                           const std::string& line = "") const {
    throw DataError("report", {.what = file_ + line + " " + why, .got = got});
  }

  std::string file_;
  json object_;
};

std::string end_of(const JsonObject& rank) {
  auto end = rank.get<std::string>("signal_name");
  if (end.empty()) end = "exit code " + std::to_string(rank.get<std::int64_t>("exit_code"));
  return rank.get<bool>("stopped_by_launcher") ? "stopped by the launcher (" + end + ")" : end;
}

RankEnd rank_end(const JsonObject& rank) {
  const auto collective = rank.get<std::string>("collective");
  const auto sequence = " seq " + std::to_string(rank.get<std::int64_t>("sequence"));
  const auto* within = rank.get<bool>("in_collective") ? "in " : "after ";
  return {.rank = rank.get<std::int64_t>("rank"),
          .end = end_of(rank),
          .collective = collective.empty() ? "" : within + collective + sequence,
          .error = rank.get<std::string>("error"),
          .step = rank.get<std::int64_t>("step")};
}

}  // namespace

RunSummary read_summary(const std::filesystem::path& file) {
  const JsonObject summary(file);
  return {.status = summary.get<std::string>("status"),
          .strategy = summary.get<std::string>("strategy"),
          .precision = summary.get<std::string>("precision"),
          .comm_backend = summary.get<std::string>("comm_backend"),
          .world_size = summary.find<std::int64_t>("world_size"),
          .epochs = summary.find<std::int64_t>("epochs"),
          .steps = summary.find<std::int64_t>("steps"),
          .samples = summary.find<std::int64_t>("samples"),
          .seconds = summary.find<double>("seconds"),
          .samples_per_second = summary.find<double>("samples_per_second"),
          .start_to_first_collective_s = summary.find<double>("start_to_first_collective_s"),
          .bytes_sent_per_step = summary.find<double>("bytes_sent_per_step"),
          .peak_rss_bytes_per_rank = summary.get<std::vector<std::int64_t>>("peak_rss_bytes_per_rank"),
          .versions = summary.get<std::map<std::string, std::string>>("versions")};
}

RunFailure read_failure(const std::filesystem::path& file) {
  const JsonObject failure(file);
  RunFailure read{.message = failure.get<std::string>("message"), .ranks = {rank_end(failure)}};
  for (const auto& other : failure.objects("others")) read.ranks.push_back(rank_end(other));
  return read;
}

}  // namespace lockstep::detail
