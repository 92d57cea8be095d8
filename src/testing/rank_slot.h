// What a rank tells the zygote while it runs, in memory that both see.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <span>

#include <lockstep/base/rank_status.h>

#include "launch/posix.h"

namespace lockstep::testing {

struct RankSlot {
  RankStatus status;
  std::atomic<bool> has_joined{false};     ///< it is connected to the others
  std::atomic<bool> has_met_fault{false};  ///< it is the victim, and its step came
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

}  // namespace lockstep::testing
