// AdvancedProfiler: a table of the distribution of the durations of each action.
#pragma once

#include <memory>

#include <lockstep/profilers/profiler.h>

namespace lockstep {

namespace detail {
class DurationHistogram;
template <class Stats>
class CallStore;
}  // namespace detail

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

}  // namespace lockstep
