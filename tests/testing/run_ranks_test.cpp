#include <lockstep/testing/run_ranks.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

TEST(RunRanks, RunsEveryRankOnce) {
  std::atomic<int> seen = 0;
  run_ranks(3, [&](const Communicator& comm) { seen += 1 << (4 * comm.rank()); });
  EXPECT_EQ(seen, 0x111);
}

// The others, which wait for it, learn that it left; theirs are not the first errors.
TEST(RunRanks, RethrowsTheFirstError) {
  EXPECT_THAT(([] {
                run_ranks(3, [](const Communicator& comm) {
                  if (comm.rank() == 1) throw DataError("test", {"no such sample", "", "", "", ""});
                  comm.barrier();
                });
              }),
              ThrowsMessage<DataError>(HasSubstr("no such sample")));
}

struct Stuck {
  std::latch release{1};
  std::latch both_done{2};
};

TEST(RunRanks, NamesStuckRanks) {
  const auto stuck = std::make_shared<Stuck>();
  const auto body = [stuck](const Communicator& comm) {
    if (comm.rank() == 1) stuck->release.wait();
    comm.barrier();
    stuck->both_done.count_down();
  };
  EXPECT_THAT([&] { run_ranks(2, body, {.deadline = std::chrono::seconds(1)}); },
              ThrowsMessage<Timeout>(
                  AllOf(HasSubstr("rank 0 in barrier seq"), HasSubstr("rank 1 outside of collectives"))));
  stuck->release.count_down();
  stuck->both_done.wait();
}

}  // namespace
}  // namespace lockstep
