// SimpleProfiler: a table of the number of calls and the durations of each action.
#pragma once

#include <memory>

#include <lockstep/profilers/profiler.h>

namespace lockstep {

namespace detail {
class CallTotal;
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

}  // namespace lockstep
