// A launcher in two processes, of which each sees to it that nothing is left when the other is killed.
//
// The first is the one that the user started and may kill. It only passes signals on, and ends as the second
// one does, which is the supervisor of the ranks. A rank dies with its supervisor by itself; what ranks have
// started would not.
#pragma once

#include <functional>

#include "launch/posix.h"
#include "launch/rank_observer.h"

namespace lockstep::launch {

/// Lets the second process know that the first one is gone: then it kills all that is below it, and itself.
class Lifeline final : public RankObserver {
 public:
  explicit Lifeline(UniqueFd first_process) : first_process_(std::move(first_process)) {}

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  std::string last_words(int) const override { return {}; }

 private:
  UniqueFd first_process_;  ///< reading end of a pipe that only the first process can write to
};

/// Calls `body` in the second process and returns in the first what it returned, or 128 + the signal that
/// killed it. In the second process signals are events from its first moment to its last, and a Lifeline is
/// among the observers. Call it while this process has one thread.
/// @throws Error when there can be no second process
int run_guarded(const std::function<int(LauncherEvents&)>& body);

}  // namespace lockstep::launch
