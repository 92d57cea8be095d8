// TraceProfiler: a time line for Perfetto (https://ui.perfetto.dev) or chrome://tracing.
#pragma once

#include <cstddef>
#include <memory>

#include <lockstep/profilers/profiler.h>

namespace lockstep {

/// Options of TraceProfiler.
struct TraceProfilerOptions {
  std::filesystem::path dirpath = {};  ///< folder, made if absent; empty: that of setup(), or the current one
  std::string filename = "trace";      ///< without extension
  /// How many a thread keeps, rounded up to a power of two: when there are more, the oldest are dropped and
  /// counted. 24 bytes each, taken as they fill.
  std::size_t events_per_thread = 131072;
};

/// Keeps the last calls and counter values of every thread and writes them to one file per rank,
/// DIRPATH/STAGE-FILENAME-RANK.json, in Chrome's trace-event format. Threads have the names that
/// pthread_setname_np gave them before their first event; threads of one name that follow each other share a
/// track. The calls of one thread must contain each other or lie apart.
class LOCKSTEP_API TraceProfiler final : public Profiler {
 public:
  explicit TraceProfiler(TraceProfilerOptions options = {});
  ~TraceProfiler() override;

  void record(Action action, Clock::time_point begin, Clock::time_point end) noexcept override;
  void count(Action counter, double value) noexcept override;

  /// Which file was written last, how many events it has and how many were dropped before them.
  std::string summary() const override;

  /// Writes what came since the file before; the file is complete or absent and replaces one of the same
  /// name. Blocking; other threads may go on recording. What a write that fails had
  /// taken is lost. describe() does this and prints the summary.
  /// @return the file
  /// @throws IoError, std::filesystem::filesystem_error
  std::filesystem::path write();

 protected:
  void report() override;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
