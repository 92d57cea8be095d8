// The profilers that the library has, by class and by name: tables of the durations of each action, and time
// lines, which can be merged into one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/profilers/profiler.h>

namespace lockstep {

namespace detail {
class CallTotal;
class DurationHistogram;
template <class Stats>
class CallStore;
}  // namespace detail

/// Options of SimpleProfiler.
struct SimpleProfilerOptions {
  std::filesystem::path dirpath = {};  ///< as ProfilerFile
  std::string filename = {};           ///< as ProfilerFile
  bool extended = true;  ///< also the number of calls and the percentage of the time since the start
};

/// Lightning's SimpleProfiler, with its table. Actions contain each other, so percentages add up to more than
/// 100; threads are added up. Needs 16 bytes per action and thread.
class LOCKSTEP_API SimpleProfiler final : public Profiler {
 public:
  explicit SimpleProfiler(SimpleProfilerOptions options = {});
  ~SimpleProfiler() override;

  void record(Action action, Clock::time_point begin, Clock::time_point end) noexcept override;
  std::string summary() const override;

 private:
  bool extended_;
  Clock::time_point start_ = Clock::now();
  std::unique_ptr<detail::CallStore<detail::CallTotal>> calls_;
};

/// The place of Lightning's AdvancedProfiler: of each action the number of calls, total and mean, the least
/// and longest duration and what 50, 90 and 99 % of the calls did not exceed. Those quantiles come from a
/// histogram and are within 0.8 % of their value, all else is exact. Needs 23 KB per action and thread. For
/// what happens inside an action take a sampling profiler such as `perf`.
class LOCKSTEP_API AdvancedProfiler final : public Profiler {
 public:
  explicit AdvancedProfiler(ProfilerFile file = {});
  ~AdvancedProfiler() override;

  void record(Action action, Clock::time_point begin, Clock::time_point end) noexcept override;
  std::string summary() const override;

 private:
  std::unique_ptr<detail::CallStore<detail::DurationHistogram>> calls_;
};

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
class LOCKSTEP_API TraceProfiler : public Profiler {
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

  /// What write() has written last; empty before.
  std::filesystem::path last_file() const;

 protected:
  /// An event that another library has measured, such as a kernel of a GPU.
  struct OtherEvent {
    std::string name = {};         ///< of the kernel, copy or operator
    std::string category = {};     ///< "kernel", "copy", "operator", ...
    std::string track = {};        ///< where it is drawn, such as "cuda:0, stream 7"
    std::int64_t begin_ns = 0;     ///< of Clock
    std::int64_t duration_ns = 0;  ///< >= 0
  };

  /// What came since the call before, in any order. Called by write().
  virtual std::vector<OtherEvent> take_other_events() { return {}; }

  void report() override;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

/// One rank's trace.
struct RankTrace {
  std::filesystem::path file = {};  ///< of TraceProfiler; others in Chrome's format will do
  int rank = 0;                     ///< becomes the process of its events
  std::chrono::nanoseconds offset =
      {};  ///< added to its times: rank 0's clock minus this rank's; one machine: 0
};

/// Writes the events of all `ranks` into one trace, `output`, which is complete or absent. Blocking; reads
/// the files event by event, so that their size does not matter.
/// @throws DataError when a file is no trace; IoError when one cannot be read or `output` not written
LOCKSTEP_API void merge_traces(std::span<const RankTrace> ranks, const std::filesystem::path& output);

/// "simple", "advanced", "trace".
LOCKSTEP_API std::span<const std::string> profiler_names();

/// The profiler called `name`, with its defaults. `file` is as for its class; a trace without a file name is
/// called "trace".
/// @throws ConfigError for other names
LOCKSTEP_API std::unique_ptr<Profiler> make_profiler(std::string_view name, ProfilerFile file = {});

}  // namespace lockstep
