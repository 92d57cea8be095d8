#include "comm/monitored_barrier.h"

#include <numeric>

#include <lockstep/base/error.h>

#include "comm/poll_until.h"
#include "rendezvous/verdict.h"

namespace lockstep::detail {
namespace {

using std::chrono::milliseconds;

std::string barrier_key(int member) { return "monitored_barrier/" + std::to_string(member); }

}  // namespace

void MonitoredBarrier::wait(milliseconds timeout) {
  ++round_;
  store_.add(barrier_key(identity_.rank), 1);
  std::vector<int> missing(static_cast<std::size_t>(identity_.size()));
  std::iota(missing.begin(), missing.end(), 0);
  const auto have_come = [&] {
    std::erase_if(missing, [this](int member) { return has_come(member); });
    return missing.empty();
  };
  if (!poll_until(std::chrono::steady_clock::now() + timeout, have_come)) report(missing, timeout);
}

bool MonitoredBarrier::has_come(int member) {
  return member == identity_.rank || store_.add(barrier_key(member), 0) >= round_;
}

void MonitoredBarrier::report(const std::vector<int>& missing, milliseconds timeout) const {
  std::vector<int> ranks;
  for (const int member : missing) ranks.push_back(identity_.global_rank(member));
  throw Timeout("comm",
                {.what = rendezvous::ranks_text(ranks) + " did not come to monitored_barrier within " +
                         std::to_string(timeout.count()) + " ms",
                 .where = "rank " + std::to_string(identity_.global_rank()),
                 .hint = "look at the missing ranks' output"},
                ranks);
}

}  // namespace lockstep::detail
