// What DdpLoggingData tells of an engine's averaged backward passes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <lockstep/parallel/ddp/ddp.h>

#include "parallel/module_states.h"

namespace lockstep::detail {

/// Takes the times of the first ten passes and of every hundredth; the other ones cost a comparison.
class ReductionLog {
 public:
  /// Where `takes_times` is not set, there are none: on a device they would be waited for.
  explicit ReductionLog(bool takes_times) : takes_times_(takes_times) {}

  /// A step is over: what follows is the next one's forward.
  void end_step();
  /// The moments of an averaged backward pass, in this order; the first reduction may start before the
  /// gradients end.
  void begin_pass();
  void begin_reduction();
  void end_gradients();
  void end_pass();

  /// The parameters that the pass did not use, in ascending order. `may_differ`: the next pass may leave out
  /// others.
  void set_unused(std::vector<std::size_t> unused, bool may_differ);

  void fill(DdpLoggingData& data, const std::vector<NamedTensor>& trained) const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Times {
    std::chrono::nanoseconds forward{}, backward{}, communication{}, overlap{};
  };

  bool is_sampled() const { return takes_times_ && (passes_ <= 10 || passes_ % 100 == 0); }

  bool takes_times_;
  std::int64_t passes_ = 0;
  std::int64_t samples_ = 0, last_sample_ = 0;
  Time forward_{}, backward_{}, reduction_{}, gradients_{};  // when they began, and gradients ended
  Times last_, average_;
  std::vector<std::size_t> unused_;
  bool is_static_ = true;
};

}  // namespace lockstep::detail
