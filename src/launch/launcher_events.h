// What wakes a launcher as long as it lives, whether ranks run or not.
#pragma once

#include <vector>

#include "launch/rank_observer.h"
#include "launch/signal_scope.h"

namespace lockstep::launch {

/// Signals, and observers that see to it that nothing outlives whoever has started this process. Borrows all.
class LauncherEvents {
 public:
  explicit LauncherEvents(SignalScope& signals) : signals_(signals) {}

  void add(RankObserver& observer) { observers_.push_back(&observer); }

  SignalScope& signals() const { return signals_; }
  const std::vector<RankObserver*>& observers() const { return observers_; }

  /// Blocks until one of `watched` or of these is there, or `timeout_ms` (-1: none) have passed; then lets
  /// the observers look. Signals are left to the caller.
  void wait(std::vector<pollfd> watched, int timeout_ms) const;

 private:
  SignalScope& signals_;
  std::vector<RankObserver*> observers_;
};

}  // namespace lockstep::launch
