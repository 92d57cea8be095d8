// The loggers that write lines of text: metrics.csv, metrics.jsonl, and a file for each metric.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/loggers/loggers.h>

#include "base/format.h"
#include "loggers/log_records.h"
#include "loggers/logger_files.h"
#include "loggers/make_logger.h"

namespace lockstep {
namespace {

using Columns = std::vector<std::string>;

constexpr std::size_t kColumnsBeforeMetrics = 2;  // epoch and step come before the metrics

void append_number(std::string& text, double value) {
  if (std::isnan(value)) return void(text += "nan");  // without the sign that formatting would print
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  text.append(digits, end);
}

// Appends a count, which is usually a whole number and then printed without a point or an exponent.
void append_count(std::string& text, double value) {
  if (!detail::is_whole(value)) return append_number(text, value);
  text += std::to_string(static_cast<std::int64_t>(value));
}

// RFC 4180: a field with a separator, a quote or a line end stands in quotes.
std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string text = "\"";
  for (const char letter : field) text += letter == '"' ? "\"\"" : std::string(1, letter);
  return text + "\"";
}

std::string header(const Columns& columns) {
  std::string text = "epoch,step";
  for (const auto& name : columns) text += "," + quoted(name);
  return text + "\n";
}

// The fields of a row: numbers or empty, which are never quoted.
std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (auto comma = line.find(','); comma != line.npos; comma = line.find(',')) {
    fields.push_back(line.substr(0, comma));
    line.remove_prefix(comma + 1);
  }
  fields.push_back(line);
  return fields;
}

// The index of each of `columns` in rows of `before`; npos where it is missing.
std::vector<std::size_t> places_in(const Columns& before, const Columns& columns) {
  std::vector<std::size_t> places;
  for (const auto& name : columns) {
    const auto found = std::ranges::lower_bound(before, name);
    const bool is_there = found != before.end() && *found == name;
    places.push_back(is_there ? kColumnsBeforeMetrics + static_cast<std::size_t>(found - before.begin())
                              : std::string::npos);
  }
  return places;
}

std::string with_columns(std::string_view line, const std::vector<std::size_t>& places) {
  const auto fields = fields_of(line);
  const auto field = [&](std::size_t place) {
    return place < fields.size() ? fields[place] : std::string_view();
  };
  std::string text = std::string(field(0)).append(",").append(field(1));
  for (const auto place : places) text.append(",").append(field(place));
  return text + "\n";
}

}  // namespace

CsvLogger::CsvLogger(std::filesystem::path folder, int flush_every_n_rows)
    : file_(std::move(folder) / "metrics.csv"),
      schedule_(flush_every_n_rows),
      hparams_(std::make_unique<detail::HparamsFile>()) {}
CsvLogger::~CsvLogger() = default;

void CsvLogger::log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) {
  if (metrics.empty()) return;
  auto row = detail::row_of(metrics, epoch, step);
  std::string place;
  append_count(place, row.epoch);
  append_count(place += ',', row.step);
  pending_.push_back({std::move(place), std::move(row.metrics)});
  if (schedule_.add_row()) flush();
}

void CsvLogger::log_hyperparams(const HyperParameters& params) {
  hparams_->update(params);
  flush();
}

void CsvLogger::flush() {
  schedule_.flushed();
  const auto folder = file_.parent_path();
  if (!pending_.empty()) detail::write_or_warn(file_, [&] { write_rows(); });
  detail::write_or_warn(folder / "hparams.yaml", [&] {
    if (hparams_->changed()) make_own_folder();
    hparams_->write(folder);
  });
}

void CsvLogger::make_own_folder() const {
  if (file_.has_parent_path()) detail::make_folder(file_.parent_path());
}

void CsvLogger::write_rows() {
  if (!is_begun_) {
    make_own_folder();
    detail::put_aside(file_);
  }
  auto columns = columns_with_pending();
  if (columns == columns_ && std::filesystem::exists(file_)) {
    detail::AppendFile file(file_, detail::AppendFile::Existing::kContinued);
    file.append(pending_lines(columns));
    file.flush();
  } else {
    rewrite(columns);
  }
  is_begun_ = true;
  columns_ = std::move(columns);
  pending_.clear();
}

// Rewrites the file with the new columns.
void CsvLogger::rewrite(const Columns& columns) const {
  constexpr std::size_t kChunk = 1 << 16;
  const auto places = places_in(columns_, columns);
  write_file_atomically(file_, [&](FileWriter& file) {
    std::ifstream written(file_);
    written.seekg(static_cast<std::streamoff>(header(columns_).size()));
    auto text = header(columns);
    for (std::string line; std::getline(written, line);) {
      text += with_columns(line, places);
      if (text.size() >= kChunk) file.write(std::exchange(text, {}));
    }
    file.write(text + pending_lines(columns));
  });
}

void CsvLogger::finalize(const std::string&) { flush(); }

CsvLogger::Columns CsvLogger::columns_with_pending() const {
  auto columns = columns_;
  for (const Row& row : pending_) {
    for (const auto& [name, value] : row.metrics) {
      const auto place = std::ranges::lower_bound(columns, name);
      if (place == columns.end() || *place != name) columns.insert(place, name);
    }
  }
  return columns;
}

std::string CsvLogger::pending_lines(const Columns& columns) const {
  std::string text;
  for (const Row& row : pending_) {
    text += row.place;
    for (const auto& name : columns) {
      text += ',';
      const auto metric = std::ranges::find(row.metrics, name, &Metric::first);
      if (metric != row.metrics.end()) append_number(text, metric->second);
    }
    text += '\n';
  }
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json json_count(double value) {
  return detail::is_whole(value) ? Json(static_cast<std::int64_t>(value)) : json_number(value);
}

}  // namespace

struct JsonlLogger::State {
  std::filesystem::path folder;
  FlushSchedule schedule;
  detail::AppendFile file{folder / "metrics.jsonl", detail::AppendFile::Existing::kPutAside};
  detail::HparamsFile hparams = {};
};

JsonlLogger::JsonlLogger(std::filesystem::path folder, int flush_every_n_rows)
    : state_(new State{.folder = std::move(folder), .schedule = FlushSchedule(flush_every_n_rows)}) {}
JsonlLogger::~JsonlLogger() = default;

void JsonlLogger::log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) {
  if (metrics.empty()) return;
  const auto row = detail::row_of(metrics, epoch, step);
  Json line{{"epoch", json_count(row.epoch)}, {"step", json_count(row.step)}};
  for (const auto& [name, value] : row.metrics) line[name] = json_number(value);
  state_->file.append(line.dump() + "\n");
  if (state_->schedule.add_row()) flush();
}

void JsonlLogger::log_hyperparams(const HyperParameters& params) {
  state_->hparams.update(params);
  flush();
}

void JsonlLogger::flush() {
  state_->schedule.flushed();
  detail::write_or_warn(state_->folder, [&] {
    state_->file.flush();
    if (!state_->hparams.changed()) return;
    detail::make_folder(state_->folder);
    state_->hparams.write(state_->folder);
  });
}

void JsonlLogger::finalize(const std::string&) { flush(); }

std::filesystem::path JsonlLogger::save_dir() const { return state_->folder; }
std::filesystem::path JsonlLogger::log_dir() const { return state_->folder; }

}  // namespace lockstep

namespace lockstep::detail {

void CsvMonitor::log_metrics(std::span<const Metric> metrics, std::int64_t /*epoch*/, std::int64_t step) {
  for (const auto& [name, value] : metrics)
    file_of(name).append(std::to_string(step) + "," + number_text(value) + "\n");
  if (schedule_.add_row()) flush();
}

AppendFile& CsvMonitor::file_of(const std::string& metric) {
  const auto known = files_.find(metric);
  if (known != files_.end()) return known->second;
  auto name = metric;
  std::ranges::replace(name, '/', '_');
  std::ranges::replace(name, ' ', '_');
  const auto path = folder_ / (name + ".csv");
  std::error_code none;
  const bool is_new = std::filesystem::file_size(path, none) == 0 || none;
  auto& file = files_.emplace(metric, AppendFile(path, AppendFile::Existing::kContinued)).first->second;
  if (is_new) file.append("step," + metric.substr(metric.rfind('/') + 1) + "\n");
  return file;
}

void CsvMonitor::flush() {
  for (auto& [name, file] : files_) write_or_warn(folder_, [&file] { file.flush(); });
  schedule_.flushed();
}

void CsvMonitor::finalize(const std::string& /*status*/) { flush(); }

}  // namespace lockstep::detail
