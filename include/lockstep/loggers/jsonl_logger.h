// metrics.jsonl: one JSON object per row, for scripts.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <lockstep/loggers/logger.h>

namespace lockstep {

/// Writes FOLDER/metrics.jsonl with lines as `{"epoch":0,"step":9,"loss":0.5}`, and FOLDER/hparams.yaml. A
/// metric named `epoch` or `step` takes the place of that number. JSON has no number for what is not finite:
/// it is written as the text "NaN", "Infinity" or "-Infinity", as Protocol Buffers do. What was flushed is
/// seen by readers, also when the process is killed.
class LOCKSTEP_API JsonlLogger final : public Logger {
 public:
  /// Rows are written in batches of `flush_every_n_rows`, or once a second. An older metrics.jsonl there is
  /// called metrics.1.jsonl, metrics.2.jsonl, ... when the first are.
  explicit JsonlLogger(std::filesystem::path folder, int flush_every_n_rows = 100);
  ~JsonlLogger() override;

  void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) override;
  void log_hyperparams(const HyperParameters& params) override;
  void flush() override;
  void finalize(const std::string& status) override;

  std::filesystem::path save_dir() const override;
  std::filesystem::path log_dir() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
