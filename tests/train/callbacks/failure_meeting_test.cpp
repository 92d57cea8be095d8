// FailureBarrier: all, or not all, within a deadline.
#include "train/checkpoints/failure_barrier.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include <lockstep/testing/run_ranks.h>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using detail::FailureBarrier;

TEST(FailureBarrier, IsCompleteWhenAllComeToTheSamePlace) {
  testing::run_ranks(3, [](const Communicator& comm) {
    FailureBarrier meeting(comm, "127.0.0.1");
    EXPECT_TRUE(meeting.is_complete("here", 20s));
    EXPECT_TRUE(meeting.is_complete("here", 20s));
    comm.barrier();  // rank 0 serves the others until then
  });
}

TEST(FailureBarrier, IsIncompleteWhenPlacesDiffer) {
  testing::run_ranks(3, [](const Communicator& comm) {
    FailureBarrier meeting(comm, "127.0.0.1");
    EXPECT_FALSE(meeting.is_complete(comm.rank() == 1 ? "there" : "here", 20s));
    comm.barrier();
  });
}

// Who comes too late hears what the first has decided, though all have been there by then.
TEST(FailureBarrier, IsIncompleteForThoseWhoComeLateToo) {
  const auto has_given_up = std::make_shared<std::atomic<bool>>(false);
  testing::run_ranks(2, [has_given_up](const Communicator& comm) {
    FailureBarrier meeting(comm, "127.0.0.1");
    if (comm.rank() == 0) {
      EXPECT_FALSE(meeting.is_complete("here", 300ms));
      *has_given_up = true;
    } else {
      while (!*has_given_up) std::this_thread::sleep_for(1ms);
      EXPECT_FALSE(meeting.is_complete("here", 20s));
    }
    comm.barrier();
  });
}

TEST(FailureBarrier, IsIncompleteWithoutTheRankThatServesIt) {
  testing::run_ranks(2, [](const Communicator& comm) {
    std::optional<FailureBarrier> meeting(std::in_place, comm, "127.0.0.1");
    comm.barrier();
    if (comm.rank() == 0) meeting.reset();
    comm.barrier();
    EXPECT_FALSE(meeting && meeting->is_complete("here", 2s));
    comm.barrier();
  });
}

}  // namespace
}  // namespace lockstep
