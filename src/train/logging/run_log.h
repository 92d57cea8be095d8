// What a Trainer's runs log: metrics, loggers and the figures of summary.json.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/loggers/logger.h>

#include "train/logging/metric_log.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// What summary.json reports beside the counters. A leg is what one start of the program has run of a fit,
/// which may go on from a checkpoint of an earlier one.
struct RunFigures {
  /// Of the training loops of the legs before this one; none: the checkpoint does not say.
  std::optional<double> seconds_before = 0;
  std::optional<std::chrono::steady_clock::time_point> leg_began = {};  ///< while the training loop runs
  double seconds = 0;                      ///< of the training loop of this leg, as of the next three
  std::int64_t steps = 0;                  ///< optimizer steps in it
  std::int64_t samples = 0;                ///< training samples in it, all ranks
  double start_to_first_collective_s = 0;  ///< 0 when there was none
  std::uint64_t bytes_sent = 0;            ///< by this rank, in the training loop

  /// Of this leg so far.
  double leg_seconds() const {
    if (!leg_began) return seconds;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - *leg_began).count();
  }
};

struct RunLog {
  MetricBoard board;    ///< of the entry point that is running
  Metrics all_metrics;  ///< of all that have run
  MetricLog train{board};
  MetricLog evaluation{board, /*measures=*/true};
  MetricLog* active = &train;                    ///< which the hook that is running logs to
  std::vector<std::shared_ptr<Logger>> loggers;  ///< on rank 0
  std::vector<Metrics> results;                  ///< of the last validate or test, by loader
  RunFigures figures;

  /// Passes a row to the loggers, which only rank 0 has, unless it is empty.
  void write_metrics(const MetricRow& row, std::int64_t epoch, std::int64_t step) const {
    if (row.empty()) return;
    for (const auto& logger : loggers) logger->log_metrics(row, epoch, step);
  }
};

/// Makes `log` the active log for hooks that run inside a scope, and restores the one before at its end.
class LogScopeGuard {
 public:
  LogScopeGuard(RunLog& all, MetricLog& log, const LogScope& scope)
      : all_(all), log_(log), outer_log_(std::exchange(all.active, &log)), outer_scope_(log.scope()) {
    log_.set_scope(scope);
  }
  ~LogScopeGuard() {
    log_.set_scope(outer_scope_);
    all_.active = outer_log_;
  }
  LogScopeGuard(const LogScopeGuard&) = delete;
  LogScopeGuard& operator=(const LogScopeGuard&) = delete;

 private:
  RunLog& all_;
  MetricLog& log_;
  MetricLog* outer_log_;
  LogScope outer_scope_;
};

/// Makes the loggers that the options name for `run_dir`; loggers of the program's code are used as they are.
/// Called on rank 0.
std::vector<std::shared_ptr<Logger>> make_loggers(const TrainerOptions& options,
                                                  const std::filesystem::path& run_dir);

/// Gives the program's options to the loggers, unless enable_autolog_hparams is off.
void log_hyper_parameters(const RunSetup& setup, const RunLog& log);

}  // namespace lockstep::detail
