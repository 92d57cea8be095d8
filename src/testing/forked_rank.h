// A rank after its fork from the zygote: runs the body and reports its end.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <span>

#include <lockstep/base/rank_status.h>

#include "launch/posix.h"
#include "testing/rank_job.h"

namespace lockstep::testing {

// The state that a rank shares with the zygote while it runs.

struct RankSlot {
  RankStatus status;
  std::atomic<bool> has_joined{false};     ///< it is connected to the others
  std::atomic<bool> has_met_fault{false};  ///< its fault is about to happen
};

/// One slot per rank, shared with the children that are forked while it lives.
class SharedSlots {
 public:
  explicit SharedSlots(int ranks) : count_(static_cast<std::size_t>(ranks)) {
    void* memory =
        ::mmap(nullptr, count_ * sizeof(RankSlot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) launch::throw_errno("cannot map the slots of the ranks");
    slots_ = static_cast<RankSlot*>(memory);
    std::uninitialized_default_construct_n(slots_, count_);
  }
  SharedSlots(const SharedSlots&) = delete;
  ~SharedSlots() { ::munmap(slots_, count_ * sizeof(RankSlot)); }

  RankSlot& operator[](int rank) const { return slots_[rank]; }

 private:
  std::size_t count_;
  RankSlot* slots_;
};

/// The data of a rank, copied from the zygote by the fork, so that they outlive it.
struct ForkedRank {
  const RankJob& job;
  const AssertionCatcher& catcher;
  RankBody body;
  int rank;
  RankSlot& slot;
  int report_fd;  ///< a file for its RankReport
  int port;       ///< on which rank 0 listens
  int listen_fd;  ///< the socket that does
};

/// Runs the body as rank `self` and ends the process. Its exit code is 1 for an exception, else 0.
[[noreturn]] void run_forked_rank(const ForkedRank& self) noexcept;

/// The body registered as `name`.
/// @throws ConfigError if there is none, or more than one
RankBody find_rank_body(const std::string& name);

}  // namespace lockstep::testing
