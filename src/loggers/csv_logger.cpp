#include <lockstep/loggers/csv_logger.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

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

Logger::~Logger() = default;

CsvLogger::CsvLogger(std::filesystem::path folder, int flush_every_n_rows)
    : file_(std::move(folder) / "metrics.csv"), flush_every_n_rows_(flush_every_n_rows) {}

void CsvLogger::log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) {
  if (metrics.empty()) return;
  pending_.push_back({epoch, step, {metrics.begin(), metrics.end()}});
  const bool waited = std::chrono::steady_clock::now() - last_flush_ > std::chrono::seconds(1);
  if (waited || static_cast<int>(pending_.size()) >= flush_every_n_rows_) flush();
}

void CsvLogger::flush() {
  last_flush_ = std::chrono::steady_clock::now();
  if (pending_.empty()) return;
  const bool rewrite = add_columns(pending_) || !created_;
  std::ranges::move(pending_, std::back_inserter(rows_));
  const auto first_new = rows_.size() - pending_.size();
  pending_.clear();
  std::string text = rewrite ? header() : "";
  for (std::size_t row = rewrite ? 0 : first_new; row < rows_.size(); ++row) text += line(rows_[row]);
  try {
    if (rewrite) {
      write_file_atomically(file_, text);
    } else {
      append(text);
    }
    created_ = true;
  } catch (const IoError& error) {
    created_ = false;  // the next row writes all of them again
    warn_once("csv_logger", std::string("metrics.csv cannot be written: ") + error.what());
  }
}

void CsvLogger::append(const std::string& text) const {
  std::ofstream file(file_, std::ios::app);
  file << text << std::flush;
  if (!file) throw IoError("loggers", {.what = file_.string() + " cannot be appended to"});
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
