// DeepSpeed's flops_profiler: what a step computes, how fast, and the page that says so.
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

/// The summary, the most expensive kinds of modules at each depth, and, where `detailed`, the tree of
/// modules. Exported for tests.
LOCKSTEP_API std::string flops_page(const ProfiledBatch& batch, const deepspeed::FlopsProfiler& options);

enum class StepPhase { kForward, kBackward, kStep };

class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// By phase.
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

  /// Since the last call.
  Times take() { return std::exchange(times_, {}); }

 private:
  std::optional<StepPhase> phase_;
  Clock::time_point since_ = {};
  Times times_ = {};
};

/// Once `profile_step` steps are done, the next one's last micro-batch is counted, and what it was goes to
/// `output_file` or is printed. A file that cannot be written is a warning. Does nothing unless enabled.
class FlopsReport {
 public:
  explicit FlopsReport(deepspeed::FlopsProfiler options);

  /// Training begins after `done` steps: where these are more, the step has been counted before.
  void begin_run(std::int64_t done);
  /// A micro-batch begins.
  void begin(StepContext& step);
  /// Its forward pass is over.
  void end_forward();
  /// It is over, and has taken `times`.
  void end(const StepContext& step, const PhaseClock::Times& times);
  /// No more is counted: the training ends.
  void stop() { counter_.reset(); }

 private:
  void give(const TrainContext& context, const PhaseClock::Times& times);

  deepspeed::FlopsProfiler options_;
  std::optional<FlopCounter> counter_;
  ProfiledBatch batch_;
  bool is_done_ = true;  // until training begins
};

}  // namespace lockstep::detail
