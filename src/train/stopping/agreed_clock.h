// Decisions by the clock that all ranks take at the same step.
#pragma once

#include <chrono>
#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// Tells when a time has passed, by rank 0's clock. Ranks ask in every step; they speak to each other only in
/// some, about once a second or ten times per interval, in which rank 0 says whether it is time, and when
/// they will speak next.
class LOCKSTEP_API AgreedClock {
 public:
  using Duration = std::chrono::steady_clock::duration;

  /// The clock starts now. With `elapsed` it is as if it had started that much earlier.
  explicit AgreedClock(Duration interval, Duration elapsed = {}) : interval_(interval) { restart(elapsed); }

  void restart(Duration elapsed = {});

  /// Whether the interval has passed. All ranks must ask equally often. Collective in some calls.
  bool is_due(const Communicator& communicator);

  /// This rank's own time since the start.
  Duration elapsed() const { return Clock::now() - start_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t steps_until_next_word() const;

  Duration interval_;
  Clock::time_point start_;
  Clock::time_point asked_;      // when the ranks last spoke
  std::int64_t steps_ = 0;       // since then
  std::int64_t until_word_ = 1;  // until they speak again
};

}  // namespace lockstep::detail
