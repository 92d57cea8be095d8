#include "launch/outside_ranks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "base/system.h"
#include "launch/posix.h"

namespace lockstep::launch {

namespace {

constexpr int kUntold = -1;
constexpr std::chrono::milliseconds kPause{2};

OutsideRanks* of_this_process = nullptr;

[[noreturn]] void leave() {
  set_outcome(RankOutcome::kDone);
  detail::end_of_process();
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace

OutsideRanks::OutsideRanks(int ranks) : ranks_(ranks) {
  void* memory = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_errno("cannot map memory for the ranks");
  shared_ = static_cast<std::atomic<int>*>(memory);
  std::uninitialized_fill_n(shared_, 1, 0);
  std::uninitialized_fill_n(shared_ + 1, ranks_, kUntold);
  of_this_process = this;
}

OutsideRanks::~OutsideRanks() {
  of_this_process = nullptr;
  ::munmap(shared_, bytes());
}

bool OutsideRanks::were_found() const { return left() > 0; }

void leave_if_started_outside(const ClusterEnvironment& environment, std::chrono::milliseconds timeout) {
  const auto* const ranks = of_this_process;
  if (ranks == nullptr || !environment.creates_processes_externally()) return;
  const auto local = static_cast<int>(env::require_int("LOCAL_RANK"));
  const auto first = static_cast<int>(env::require_int("RANK")) - local;
  ranks->told(local) = environment.global_rank();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  bool is_their_own = true;
  for (int rank = 0; rank < ranks->ranks_; ++rank) {
    while (ranks->told(rank) == kUntold) {
      if (std::chrono::steady_clock::now() > deadline)
        throw Timeout("launch", {.what = "not all ranks of this node have made a Trainer or a Fabric",
                                 .expected = std::to_string(ranks->ranks_) + " ranks",
                                 .got = "none from local rank " + std::to_string(rank)});
      std::this_thread::sleep_for(kPause);
    }
    is_their_own = is_their_own && ranks->told(rank) == first + rank;
  }
  if (is_their_own) return;
  ++ranks->left();
  leave();
}

}  // namespace lockstep::launch
