// Reads the result files of a run: metrics.csv, summary.json and failure.json.
#include "report/run_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "base/read_file.h"
#include "formats/file_text.h"
#include "formats/gzip_file.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

bool ends_within_a_line(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream || stream.tellg() <= 0) return false;
  stream.seekg(-1, std::ios::end);
  return stream.get() != '\n';
}

class MetricsReader {
 public:
  explicit MetricsReader(const fs::path& file) : file_(file), lines_(file) {}

  std::vector<MetricCurve> read() {
    const bool last_is_open = ends_within_a_line(file_);
    if (!take_header()) return {};
    std::string line;  // read, but taken only when it is known to have an end
    bool waiting = false;
    for (std::string_view next; lines_.next(next);) {
      if (waiting) take_row(line);
      waiting = true;
      line = next;
      line_number_ = lines_.line_number();
    }
    if (waiting && !last_is_open) take_row(line);
    return by_name();
  }

 private:
  bool take_header() {
    std::string text;
    for (std::string_view line; lines_.next(line);) {
      text += line;
      line_number_ = lines_.line_number();
      if (std::ranges::count(text, '"') % 2 == 0) break;
      text += '\n';  // of a name in quotes
    }
    if (text.empty()) return false;
    auto names = fields_of(text);
    epoch_column_ = take_column(names, "epoch");
    step_column_ = take_column(names, "step");
    for (auto& name : names) curves_.push_back({.name = std::move(name)});
    return true;
  }

  // RFC 4180: what stands in quotes may hold commas, and quotes twice.
  static std::vector<std::string> fields_of(std::string_view line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const bool is_quote = line[i] == '"';
      if (is_quote && quoted && line.substr(i + 1).starts_with('"')) {
        fields.back() += line[++i];
      } else if (is_quote) {
        quoted = !quoted;
      } else if (line[i] == ',' && !quoted) {
        fields.emplace_back();
      } else {
        fields.back() += line[i];
      }
    }
    return fields;
  }

  std::size_t take_column(const std::vector<std::string>& names, std::string_view name) const {
    const auto place = std::ranges::find(names, name);
    if (place == names.end()) {
      fail("no column '" + std::string(name) + "'", "epoch,step and the names of metrics",
           std::to_string(names.size()) + " other columns");
    }
    return static_cast<std::size_t>(place - names.begin());
  }

  void take_row(std::string_view line) {
    values_.clear();
    for (;;) {
      const auto comma = line.find(',');
      values_.push_back(number(line.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      line.remove_prefix(comma + 1);
    }
    if (values_.size() != curves_.size()) {
      fail("wrong number of fields", std::to_string(curves_.size()), std::to_string(values_.size()));
    }
    const auto step = whole(step_column_);
    if (!step) fail("no step", "a whole number in column step", "an empty field");
    epoch_ = whole(epoch_column_).value_or(epoch_);
    for (std::size_t column = 0; column < values_.size(); ++column) {
      if (column == step_column_ || column == epoch_column_ || !values_[column]) continue;
      curves_[column].points.push_back({.step = *step, .epoch = epoch_, .value = *values_[column]});
    }
  }

  // What strtod gives, whatever the locale.
  static double out_of_range(std::string_view field) {
    if (field.find_first_of("eE") != std::string_view::npos && field.find("-", 1) != std::string_view::npos)
      return 0;
    return field.starts_with('-') ? -HUGE_VAL : HUGE_VAL;
  }

  std::optional<double> number(std::string_view field) const {
    if (field.empty()) return std::nullopt;
    double value = 0;
    const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error == std::errc::result_out_of_range) return out_of_range(field);
    if (error != std::errc() || stop != field.data() + field.size()) {
      fail("column " + std::to_string(values_.size() + 1) + " holds no number", "a number or nothing",
           in_quotes(field));
    }
    return value;
  }

  // A program may log numbers of its own under these names, with fractions.
  std::optional<std::int64_t> whole(std::size_t column) const {
    constexpr double kLargest = 9007199254740992.0;  // beyond it a double has gaps
    const auto value = values_[column];
    if (!value) return std::nullopt;
    if (!(std::abs(*value) <= kLargest)) {
      fail("column " + std::to_string(column + 1) + " holds no whole number", "an epoch or a step",
           std::to_string(*value));
    }
    return static_cast<std::int64_t>(std::floor(*value));
  }

  std::vector<MetricCurve> by_name() {
    std::erase_if(curves_, [](const MetricCurve& curve) { return curve.points.empty(); });
    std::ranges::sort(curves_, {}, &MetricCurve::name);
    for (auto& curve : curves_) std::ranges::stable_sort(curve.points, {}, &MetricPoint::step);
    return std::move(curves_);
  }

  [[noreturn]] void fail(std::string what, std::string expected, std::string got) const {
    throw DataError("report", {.what = std::move(what),
                               .expected = std::move(expected),
                               .got = std::move(got),
                               .where = file_.string() + ":" + std::to_string(line_number_)});
  }

  const fs::path& file_;
  LineReader lines_;
  std::int64_t line_number_ = 0;
  std::size_t epoch_column_ = 0;
  std::size_t step_column_ = 0;
  std::int64_t epoch_ = 0;
  std::vector<MetricCurve> curves_;            // one per column
  std::vector<std::optional<double>> values_;  // of the row
};

// N of metrics.N.csv; 0 for other names.
int number_put_aside(const fs::path& file) {
  constexpr std::string_view kBegin = "metrics.", kEnd = ".csv";
  const auto name = file.filename().string();
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() <= kBegin.size() + kEnd.size())
    return 0;
  int number = 0;
  const auto* const end = name.data() + name.size() - kEnd.size();
  const auto read = std::from_chars(name.data() + kBegin.size(), end, number);
  return read.ec == std::errc() && read.ptr == end && number > 0 ? number : 0;
}

// The oldest first. Numbers of runs that have logged nothing are missing.
std::vector<fs::path> metrics_files(const fs::path& folder) {
  std::map<int, fs::path> by_number;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const int number = number_put_aside(entry.path()); number > 0)
      by_number.emplace(number, entry.path());
  std::vector<fs::path> files;
  for (auto& [number, file] : by_number) files.push_back(std::move(file));
  if (fs::exists(folder / "metrics.csv")) files.push_back(folder / "metrics.csv");
  return files;
}

// What a later file begins anew replaces what the earlier ones had from there. One that never leaves step 0
// is of validate or test, which train nothing: no point of a curve that there is already.
void append(std::vector<MetricPoint>& points, const std::vector<MetricPoint>& later) {
  if (later.back().step == 0 && !points.empty()) return;
  const auto again = std::ranges::lower_bound(points, later.front().step, {}, &MetricPoint::step);
  points.erase(again, points.end());
  points.insert(points.end(), later.begin(), later.end());
}

}  // namespace

std::vector<MetricCurve> read_metrics_file(const fs::path& file) { return MetricsReader(file).read(); }

std::vector<MetricCurve> read_metrics(const fs::path& folder) {
  std::map<std::string, std::vector<MetricPoint>> joined;
  for (const auto& file : metrics_files(folder)) {
    for (auto& curve : read_metrics_file(file)) append(joined[curve.name], curve.points);
  }
  std::vector<MetricCurve> curves;
  for (auto& [name, points] : joined) curves.push_back({.name = name, .points = std::move(points)});
  return curves;
}

namespace {

using nlohmann::json;

std::string text_of(const std::filesystem::path& file) {
  auto text = read_file(file);
  if (!text) throw IoError("report", unreadable_file(file, system_error_text(errno)));
  return *std::move(text);
}

/// An object in a JSON file that is not trusted.
class JsonObject {
 public:
  explicit JsonObject(const std::filesystem::path& file) : file_(file.string()) {
    const auto text = text_of(file);
    try {
      object_ = json::parse(text);
    } catch (const json::parse_error& error) {
      const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
      refuse("is no JSON", error.what(), ":" + std::to_string(1 + std::count(text.begin(), end, '\n')));
    } catch (const json::exception& error) {
      refuse("holds a value that cannot be read", error.what(), "");
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
          .versions = summary.get<std::map<std::string, std::string>>("versions"),
          .xla = summary.get<std::map<std::string, double>>("xla")};
}

RunFailure read_failure(const std::filesystem::path& file) {
  const JsonObject failure(file);
  RunFailure read{.message = failure.get<std::string>("message"), .ranks = {rank_end(failure)}};
  for (const auto& other : failure.objects("others")) read.ranks.push_back(rank_end(other));
  return read;
}

}  // namespace lockstep::detail
