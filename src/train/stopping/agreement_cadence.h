// When the ranks of a fit agree on what each of them has seen: a signal, or the time.
#pragma once

#include <chrono>
#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// Ranks ask in every step and exchange a number in some of them only. In each exchange they also agree on
/// the step of the next one: as many steps away as were made lately in the time that is to pass.
class LOCKSTEP_API AgreementCadence {
 public:
  using Clock = std::chrono::steady_clock;

  /// Whose number counts.
  enum class Rule { kRankZero, kLargest };

  /// Exchanges come about every `between`, and no more than `most_steps` apart.
  AgreementCadence(Rule rule, Clock::duration between, std::int64_t most_steps)
      : rule_(rule), between_(between), most_steps_(most_steps) {}

  /// The next step has an exchange.
  void restart();

  /// Whether this step has one: then all ranks must call agree(). All must ask equally often.
  bool is_time() { return ++steps_ >= until_next_; }

  /// What all ranks go by, where this one has seen `own`. Collective, blocking.
  std::int64_t agree(std::int64_t own, const Communicator& communicator);

 private:
  std::int64_t steps_until_next() const;

  Rule rule_;
  Clock::duration between_;
  std::int64_t most_steps_;
  Clock::time_point last_ = Clock::now();
  std::int64_t steps_ = 0;       // since the last exchange
  std::int64_t until_next_ = 1;  // from the last exchange to the next
};

/// Tells all ranks in the same step that a time has passed, by rank 0's clock. Ranks exchange a number about
/// once a second or, of short intervals, ten times per interval.
class LOCKSTEP_API AgreedClock {
 public:
  using Duration = AgreementCadence::Clock::duration;

  /// The clock starts now. With `elapsed` it is as if it had started that much earlier.
  explicit AgreedClock(Duration interval, Duration elapsed = {});

  void restart(Duration elapsed = {});

  /// Whether the interval has passed. All ranks must ask equally often. Collective in some calls.
  bool is_due(const Communicator& communicator);

  /// This rank's own time since the start.
  Duration elapsed() const { return AgreementCadence::Clock::now() - start_; }

 private:
  Duration interval_;
  AgreementCadence cadence_;
  AgreementCadence::Clock::time_point start_;
};

}  // namespace lockstep::detail
