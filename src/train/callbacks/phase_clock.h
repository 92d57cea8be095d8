// How long forward, backward and the step take.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <utility>

namespace lockstep::detail {

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

}  // namespace lockstep::detail
