#include "report/time_line.h"

#include <algorithm>

namespace lockstep::detail {
namespace {

/// Goes along a thread's calls with those that are open.
class Sweep {
 public:
  void begin(const Call& call) {
    advance(call.begin_us);
    const bool is_inner = !open_.empty();
    const auto outer = is_inner ? open_.back() : call;
    open_.push_back({.begin_us = call.begin_us,
                     .end_us = std::min(call.end_us, outer.end_us),
                     .phase = outer.phase == Phase::kCompute ? call.phase : outer.phase});
  }

  void advance(double until_us) {
    while (!open_.empty() && open_.back().end_us <= until_us) {
      count(open_.back().end_us);
      open_.pop_back();
    }
    count(until_us);
  }

  const std::array<double, kPhases>& us() const { return us_; }

 private:
  void count(double until_us) {
    if (!open_.empty()) us_[static_cast<std::size_t>(open_.back().phase)] += until_us - now_us_;
    now_us_ = until_us;
  }

  std::vector<Call> open_;
  std::array<double, kPhases> us_ = {};
  double now_us_ = 0;
};

}  // namespace

Phase phase_of(std::string_view category, std::string_view name) {
  if (category == "collective") return Phase::kCommunication;
  if (category == "checkpoint") return Phase::kCheckpoint;
  const bool fetches = name.ends_with("dataloader_next") || name.ends_with(".val_next") ||
                       name.ends_with(".test_next") || name.ends_with(".predict_next");
  return category == "data" || fetches ? Phase::kData : Phase::kCompute;
}

PhaseTimes phase_times(std::vector<Call> calls) {
  if (calls.empty()) return {};
  std::ranges::sort(calls, [](const Call& a, const Call& b) {
    return a.begin_us != b.begin_us ? a.begin_us < b.begin_us : a.end_us > b.end_us;
  });
  const double last_us = std::ranges::max(calls, {}, &Call::end_us).end_us;
  Sweep sweep;
  for (const auto& call : calls) sweep.begin(call);
  sweep.advance(last_us);
  return {.us = sweep.us(), .span_us = last_us - calls.front().begin_us};
}

}  // namespace lockstep::detail
