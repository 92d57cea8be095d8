// How the ranks of a fit learn that one of them got a signal.
#pragma once

#include <chrono>
#include <cstdint>

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// What a signal asks of a fit; of several that ranks have got, the largest counts.
enum class StopSignal : std::int64_t {
  kNone,
  kTerminate,  ///< save and end
  kRequeue     ///< save, have the job started again, and end
};

/// Ranks ask behind every micro-batch; they speak to each other only in some, about twice a second, in one
/// small reduction.
class SignalVote {
 public:
  /// What all ranks are to do, where `own` is what this one was told. All ranks must ask equally often.
  /// Collective in some calls.
  StopSignal take(StopSignal own, const Communicator& communicator);

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t steps_until_next_word() const;

  Clock::time_point asked_ = Clock::now();  // when the ranks last spoke
  std::int64_t steps_ = 0;                  // since then
  std::int64_t until_word_ = 1;             // until they speak again
};

}  // namespace lockstep::detail
