// Where metrics go. Loggers are used on rank 0 only.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

// The settings of a run that loggers keep: learning rate, layers, names.

/// The value of one setting.
using HyperParameter = std::variant<bool, std::int64_t, double, std::string>;

/// Names with values. A slash in a name nests: `optimizer/lr` is `lr` of `optimizer`.
using HyperParameters = std::vector<std::pair<std::string, HyperParameter>>;

// When a logger writes out the rows that it holds.

/// Every so many rows, or once a second.
class FlushSchedule {
 public:
  explicit FlushSchedule(int flush_every_n_rows) : flush_every_n_rows_(flush_every_n_rows) {}

  /// Counts a row; whether it is time to write.
  bool add_row() {
    const bool waited = std::chrono::steady_clock::now() - last_flush_ > std::chrono::seconds(1);
    return ++rows_ >= flush_every_n_rows_ || waited;
  }
  /// The rows were written, or it was tried.
  void flushed() {
    rows_ = 0;
    last_flush_ = std::chrono::steady_clock::now();
  }

 private:
  int flush_every_n_rows_;
  int rows_ = 0;
  std::chrono::steady_clock::time_point last_flush_ = {};
};

/// One metric: name and value.
using Metric = std::pair<std::string, double>;

/// Base of all loggers. Every rank may construct one: those of lockstep touch no file before they are given
/// something. What cannot be written never stops training: it is reported once, kept, and tried again.
/// None writes in its destructor: a forked child would write its parent's rows a second time.
class LOCKSTEP_API Logger {
 public:
  virtual ~Logger();

  /// Takes one row. `step` counts the batches in which the optimizer stepped, from 0.
  virtual void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) = 0;

  /// Takes settings of the run; one that was given before is replaced.
  virtual void log_hyperparams(const HyperParameters& params);

  /// Writes out what was taken. Blocking.
  virtual void flush() {}

  /// The run ended; `status` is "success" or "failed". Writes out what was taken. Blocking.
  virtual void finalize(const std::string& status) = 0;

  /// The experiment, and the run in it; empty where a logger has none. May claim the run's folder.
  /// @throws IoError when that folder cannot be made
  virtual std::string name() const { return {}; }
  /// What tells runs of one name apart; empty: nothing.
  virtual std::string version() const { return {}; }

  /// The folder of all experiments, and that of this run; empty where a logger has none. log_dir() may
  /// claim the run's folder.
  /// @throws IoError when that folder cannot be made
  virtual std::filesystem::path save_dir() const { return {}; }
  /// The folder it writes to; empty: none.
  virtual std::filesystem::path log_dir() const { return {}; }
};

}  // namespace lockstep
