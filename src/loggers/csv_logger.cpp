#include <lockstep/loggers/csv_logger.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include <lockstep/base/log.h>

namespace lockstep {
namespace {

void append_number(std::string& text, double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  text.append(digits, end);
}

}  // namespace

Logger::~Logger() = default;

CsvLogger::CsvLogger(std::filesystem::path folder, int flush_every_n_rows)
    : file_(std::move(folder) / "metrics.csv"), flush_every_n_rows_(flush_every_n_rows) {}

void CsvLogger::log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) {
  if (metrics.empty()) return;
  pending_.push_back({epoch, step, {metrics.begin(), metrics.end()}});
  if (static_cast<int>(pending_.size()) >= flush_every_n_rows_) flush();
}

void CsvLogger::flush() {
  if (pending_.empty() && created_) return;
  const bool rewrite = add_columns(pending_) || !created_;
  std::string text = rewrite ? header() : "";
  if (rewrite) {
    for (const Row& row : written_) text += line(row);
  }
  for (const Row& row : pending_) text += line(row);
  std::ofstream file(file_, rewrite ? std::ios::trunc : std::ios::app);
  file << text << std::flush;
  if (!file) warn_once("csv_logger", "metrics.csv cannot be written, rows are lost: " + file_.string());
  created_ = true;
  std::ranges::move(pending_, std::back_inserter(written_));
  pending_.clear();
}

void CsvLogger::finalize(const std::string&) { flush(); }

bool CsvLogger::add_columns(std::span<const Row> rows) {
  const auto before = columns_.size();
  for (const Row& row : rows) {
    for (const auto& [name, value] : row.metrics) {
      const auto place = std::ranges::lower_bound(columns_, name);
      if (place == columns_.end() || *place != name) columns_.insert(place, name);
    }
  }
  return columns_.size() != before;
}

std::string CsvLogger::header() const {
  std::string text = "epoch,step";
  for (const auto& name : columns_) text += "," + name;
  return text + "\n";
}

std::string CsvLogger::line(const Row& row) const {
  std::string text = std::to_string(row.epoch) + "," + std::to_string(row.step);
  for (const auto& name : columns_) {
    text += ',';
    const auto metric = std::ranges::find(row.metrics, name, &Metric::first);
    if (metric != row.metrics.end()) append_number(text, metric->second);
  }
  return text + "\n";
}

}  // namespace lockstep
