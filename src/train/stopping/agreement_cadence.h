// When the ranks of a fit agree on what each of them has seen, such as a signal or the time, and how they
// agree to stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Ranks ask in every step and exchange a number in some of them only. In each exchange they also agree on
/// the step of the next one: as many steps away as were made lately in the time that is to pass.
class LOCKSTEP_API AgreementCadence {
 public:
  using Clock = std::chrono::steady_clock;

  /// Which number all ranks use.
  enum class Rule { kRankZero, kLargest };

  /// Exchanges come about every `between`, and no more than `most_steps` apart.
  AgreementCadence(Rule rule, Clock::duration between, std::int64_t most_steps)
      : rule_(rule), between_(between), most_steps_(most_steps) {}

  /// The next step has an exchange.
  void restart();

  /// Whether this step has one: then all ranks must call agree(). All must ask equally often.
  bool is_time() { return ++steps_ >= until_next_; }

  /// The number that all ranks use, where this rank has seen `own`. Collective, blocking.
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

/// Requests to stop a fit.
struct StopState {
  bool requested = false;               ///< by a hook on this rank
  bool saved = false;                   ///< that request is stored in checkpoints
  bool this_run_only = false;           ///< a request of all ranks that is not stored in checkpoints
  std::set<const Callback*> callbacks;  ///< those of all ranks that request it, until they take it back
  bool agreed = false;                  ///< what several ranks have agreed on

  bool is_wanted() const { return requested || !callbacks.empty(); }
};

/// Has several ranks stop at the same step. They vote before the first one, at the ends of epochs, after
/// validations, whenever metrics are written and, where a callback ends runs by the clock, about twice a
/// second.
class StopVote {
 public:
  StopVote(const RunSetup& setup, StopState& stop) : setup_(setup), stop_(stop) {}

  /// To be called before the first step; `by_the_clock`: a callback may end the run by the clock. Not
  /// Collective.
  void begin(bool by_the_clock);

  /// Sets StopState::agreed. Collective.
  void take();

  /// Called after each micro-batch. `stepped`: the optimizer has stepped in it; `batches_that_stepped` counts
  /// the batches before it that did. Collective in some calls.
  void take_in_time(bool stepped, std::int64_t batches_that_stepped);

 private:
  const RunSetup& setup_;
  StopState& stop_;
  std::optional<AgreedClock> clock_;
};

}  // namespace lockstep::detail
