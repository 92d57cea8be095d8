// Whether a fit is to stop, and what several ranks do to stop at the same step.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "train/options/run_setup.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

/// Requests to stop a fit.
struct StopState {
  bool requested = false;               ///< by a hook on this rank
  bool saved = false;                   ///< that request is kept in checkpoints
  bool this_run_only = false;           ///< a request of all ranks that is not kept in checkpoints
  std::set<const Callback*> callbacks;  ///< those of all ranks that request it, until they take it back
  bool agreed = false;                  ///< what several ranks have agreed on

  bool is_wanted() const { return requested || !callbacks.empty(); }
};

/// Has several ranks stop at the same step. They vote at the ends of epochs, after validations, whenever
/// metrics are written and, where a callback ends runs by the clock, about twice a second.
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
