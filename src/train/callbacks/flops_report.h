// DeepSpeed's flops_profiler: the operations and the speed of a step, and the report that it prints.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/deepspeed/side_sections.h>
#include <lockstep/fabric/flop_counter.h>
#include <lockstep/train/hooks.h>

namespace lockstep::detail {

/// One micro-batch of this rank, and the step after it.
struct ProfiledBatch {
  using Time = std::chrono::duration<double>;

  std::int64_t step = 0;  ///< that it belonged to, from 1
  int world_size = 1;
  std::int64_t batch_size = 0;
  Time forward = {}, backward = {}, update = {};
  std::vector<FlopCounter::ModuleWork> modules = {};  ///< of forward; the model first
};

/// The report: a summary, the most expensive kinds of modules at each depth and, where `detailed`, the tree
/// of modules. Exported for tests.
LOCKSTEP_API std::string flops_page(const ProfiledBatch& batch, const deepspeed::FlopsProfiler& options);

enum class StepPhase { kForward, kBackward, kStep };

class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Times by phase.
  struct Times : std::array<Clock::duration, 3> {
    Clock::duration of(StepPhase phase) const { return (*this)[static_cast<std::size_t>(phase)]; }
    Clock::duration sum() const { return (*this)[0] + (*this)[1] + (*this)[2]; }
    Times& operator+=(const Times& more) {
      for (std::size_t phase = 0; phase < size(); ++phase) (*this)[phase] += more[phase];
      return *this;
    }
  };

  void enter(StepPhase phase) {
    leave();
    phase_ = phase;
  }

  void leave() {
    const auto now = Clock::now();
    if (phase_) times_[static_cast<std::size_t>(*phase_)] += now - since_;
    phase_.reset();
    since_ = now;
  }

  /// The times since the last call.
  Times take() { return std::exchange(times_, {}); }

 private:
  std::optional<StepPhase> phase_;
  Clock::time_point since_ = {};
  Times times_ = {};
};

/// Counts the operations of the last micro-batch of the step after `profile_step`, and writes the report to
/// `output_file` or prints it. A file that cannot be written is a warning. Does nothing unless enabled.
class FlopsReport {
 public:
  explicit FlopsReport(deepspeed::FlopsProfiler options);

  /// Call where training begins after `done` steps. Where these are more than profile_step, the step was
  /// counted before.
  void begin_run(std::int64_t done);
  /// Call where a micro-batch begins.
  void begin(StepContext& step);
  /// Call after its forward pass.
  void end_forward();
  /// Call at its end, with the times that it has taken.
  void end(const StepContext& step, const PhaseClock::Times& times);
  /// Call where training ends.
  void stop() { counter_.reset(); }

 private:
  void give(const TrainContext& context, const PhaseClock::Times& times);

  deepspeed::FlopsProfiler options_;
  std::optional<FlopCounter> counter_;
  ProfiledBatch batch_;
  bool is_done_ = true;  // until training begins
};

}  // namespace lockstep::detail
