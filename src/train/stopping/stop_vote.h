// What several ranks do to stop at the same step.
#pragma once

#include <optional>

#include "train/run_state.h"
#include "train/stopping/agreed_clock.h"

namespace lockstep::detail {

/// Asks whether any rank wishes to stop: in a world of more than one, at the ends of epochs, behind
/// validation, whenever metrics are written, and where a callback ends runs by the clock about twice a
/// second.
class StopVote {
 public:
  explicit StopVote(RunState& state) : state_(state) {}

  /// Before the first step. Not Collective.
  void begin();

  /// Sets stop_agreed. Collective.
  void take();

  /// Behind each micro-batch, `stepped` with an optimizer step. Collective in some calls.
  void take_in_time(bool stepped);

 private:
  RunState& state_;
  std::optional<AgreedClock> clock_;
};

}  // namespace lockstep::detail
