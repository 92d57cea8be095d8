// Hands the collectives of this process to a profiler.
#pragma once

#include <string>
#include <vector>

#include <lockstep/comm/collective_observer.h>
#include <lockstep/profilers/profiler.h>

namespace lockstep::detail {

/// While it lives, collectives are actions `[Communicator].all_reduce` and so on, in the threads that carry
/// them out. Borrows the profiler.
class ProfiledCollectives final : private CollectiveObserver {
 public:
  explicit ProfiledCollectives(Profiler& profiler) : profiler_(profiler) {
    for (const char* name : collective_names())
      actions_.emplace_back("[Communicator]." + std::string(name), ActionCategory::kCollective);
  }

 private:
  void on_collective(const CollectiveEvent& event) noexcept override {
    profiler_.record(actions_[event.kind], event.begin, event.end);
  }

  Profiler& profiler_;
  std::vector<Action> actions_;
  ObservedCollectives scope_{*this};  // last: what it observes is complete
};

}  // namespace lockstep::detail
