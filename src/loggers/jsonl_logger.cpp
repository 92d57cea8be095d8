#include <lockstep/loggers/jsonl_logger.h>

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/loggers/logger.h>

#include "loggers/hparams_file.h"
#include "loggers/logger_files.h"
#include "loggers/metric_row.h"

namespace lockstep {
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
