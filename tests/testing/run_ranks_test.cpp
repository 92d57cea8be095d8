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

// Where the machine is busy, ranks may not have come so far after a second.
TEST(RunRanks, NamesStuckRanks) {
  const auto names_both =
      AllOf(HasSubstr("rank 0 in barrier seq"), HasSubstr("rank 1 outside of collectives"));
  std::string text;
  for (const int deadline_s : {1, 5, 25}) {
    const auto stuck = std::make_shared<Stuck>();
    const auto body = [stuck](const Communicator& comm) {
      if (comm.rank() == 1) stuck->release.wait();
      comm.barrier();
      stuck->both_done.count_down();
    };
    try {
      run_ranks(2, body, {.deadline = std::chrono::seconds(deadline_s)});
    } catch (const Timeout& error) {
      text = error.what();
    }
    stuck->release.count_down();
    stuck->both_done.wait();
    if (::testing::Value(text, names_both)) break;
  }
  EXPECT_THAT(text, names_both);
}

}  // namespace
}  // namespace lockstep
