// A barrier that can tell who is missing.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <lockstep/comm/store.h>

#include "comm/group/group_identity.h"

namespace lockstep::detail {

/// For groups whose collectives are not checked; the others meet over the control mesh. Ranks meet in a store
/// rather than on the network between them, so that a missing rank breaks nothing.
class MonitoredBarrier {
 public:
  /// `store` is the group's own.
  MonitoredBarrier(Store store, GroupIdentity identity)
      : store_(std::move(store)), identity_(std::move(identity)) {}

  /// Returns when all ranks have called it as often as this one. Collective, blocking.
  /// @throws Timeout naming, by global rank, those that did not within `timeout`
  void wait(std::chrono::milliseconds timeout);

 private:
  bool has_come(int member);
  [[noreturn]] void report(const std::vector<int>& missing, std::chrono::milliseconds timeout) const;

  Store store_;
  GroupIdentity identity_;
  std::int64_t round_ = 0;
};

}  // namespace lockstep::detail
