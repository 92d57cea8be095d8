#include <lockstep/loggers/csv_logger.h>

#include <algorithm>
#include <charconv>

#include <lockstep/base/atomic_file.h>

#include "loggers/append_file.h"
#include "loggers/hparams_file.h"
#include "loggers/write_or_warn.h"

namespace lockstep {
namespace {

void append_number(std::string& text, double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  text.append(digits, end);
}

// RFC 4180: a field with a separator, a quote or a line end stands in quotes.
std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string text = "\"";
  for (const char letter : field) text += letter == '"' ? "\"\"" : std::string(1, letter);
  return text + "\"";
}

}  // namespace

CsvLogger::CsvLogger(std::filesystem::path folder, int flush_every_n_rows)
    : file_(std::move(folder) / "metrics.csv"),
      schedule_(flush_every_n_rows),
      hparams_(std::make_unique<detail::HparamsFile>()) {}
CsvLogger::~CsvLogger() = default;

void CsvLogger::log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) {
  if (metrics.empty()) return;
  pending_.push_back({epoch, step, {metrics.begin(), metrics.end()}});
  if (schedule_.add_row()) flush();
}

void CsvLogger::log_hyperparams(const HyperParameters& params) {
  hparams_->update(params);
  flush();
}

void CsvLogger::flush() {
  schedule_.flushed();
  const bool missing = !created_ && !rows_.empty();  // the last write failed: the next one writes all rows
  if (missing || !pending_.empty()) created_ = detail::write_or_warn(file_, [&] { write_rows(); });
  detail::write_or_warn(file_.parent_path() / "hparams.yaml", [&] { hparams_->write(file_.parent_path()); });
}

void CsvLogger::write_rows() {
  const bool rewrite = add_columns(pending_) || !created_;
  const auto first_new = rewrite ? 0 : rows_.size();
  std::ranges::move(pending_, std::back_inserter(rows_));
  pending_.clear();
  std::string text = rewrite ? header() : "";
  for (std::size_t row = first_new; row < rows_.size(); ++row) text += line(rows_[row]);
  if (rewrite) {
    write_file_atomically(file_, text);
  } else {
    detail::AppendFile file(file_, detail::AppendFile::Existing::kContinued);
    file.append(text);
    file.flush();
  }
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
  for (const auto& name : columns_) text += "," + quoted(name);
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
