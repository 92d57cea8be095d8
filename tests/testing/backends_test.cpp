// CountingBackend and FaultyBackend do to a communicator what they say, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>

#include "../support/expect_error.h"

namespace lockstep::testing {
namespace {

using test::expect_error;

TEST(CountingBackend, WritesDownWhatIsIssued) {
  run_ranks(2, [](const Communicator& comm) {
    CountingBackend counting(comm);
    const auto counted = counting.communicator();
    EXPECT_EQ(counted.rank(), comm.rank());
    EXPECT_EQ(counted.size(), 2);
    auto tensor = at::full({8}, comm.rank() + 1.0, at::kFloat);
    counted.all_reduce(tensor);
    counting.mark("between");
    const auto gathered = at::empty({2, 8});
    counted.all_gather_async(gathered, tensor).wait();
    counted.barrier();
    EXPECT_EQ(tensor[0].item<float>(), 3) << "it is carried out";
    EXPECT_EQ(gathered.sum().item<float>(), 48);

    const auto calls = counting.calls();
    ASSERT_EQ(calls.size(), 4u);
    EXPECT_EQ(calls[0].name, "all_reduce");
    EXPECT_FALSE(calls[0].is_async);
    EXPECT_TRUE(calls[1].is_mark);
    EXPECT_EQ(calls[2].name, "all_gather");
    EXPECT_TRUE(calls[2].is_async);
    EXPECT_LE(calls[0].issued_at, calls[3].issued_at);
    EXPECT_EQ(counting.count(), 3u);
    EXPECT_EQ(counting.count("barrier"), 1u);
    EXPECT_EQ(counting.bytes("all_reduce"), 32u);
    EXPECT_EQ(counting.bytes(), 32u + 64u);
    counting.clear();
    EXPECT_TRUE(counting.calls().empty());
  });
}

TEST(CountingBackend, GroupsWithOtherMembersDoNotMeetEachOther) {
  run_ranks(3, [](const Communicator& comm) {
    CountingBackend counting(comm);
    const auto counted = counting.communicator();
    for (const auto& members : {std::vector{0, 1}, std::vector{0, 2}, std::vector{1, 2}}) {
      const auto group = counted.new_group(members);
      if (!group) continue;
      const auto sum = at::full({1}, comm.rank(), at::kFloat);
      group->all_reduce(sum);
      EXPECT_EQ(sum.item<int>(), members[0] + members[1]);
    }
  });
}

TEST(FaultyBackend, FailsTheNthCollectiveOnly) {
  run_ranks(2, [](const Communicator& comm) {
    const FaultyBackend faulty(comm, {.nth = 2, .collective = "broadcast"});
    const auto broken = faulty.communicator();
    const auto tensor = at::ones({2});
    broken.broadcast(tensor);
    broken.all_reduce(tensor);
    expect_error<CommError>([&] { broken.broadcast(tensor); }, {"broadcast fails by request", "rank"});
    broken.broadcast(tensor);
    EXPECT_EQ(tensor[0].item<float>(), 2);
  });
}

TEST(FaultyBackend, AnAsynchronousOneFailsInWait) {
  run_ranks(2, [](const Communicator& comm) {
    const FaultyBackend faulty(comm, {.nth = 1});
    const auto work = faulty.communicator().all_reduce_async(at::ones({2}));
    expect_error<CommError>([&] { work.wait(); }, {"all_reduce fails by request"});
    faulty.communicator().barrier();
  });
}

TEST(FaultyBackend, DelaysWithoutFailing) {
  run_ranks(2, [](const Communicator& comm) {
    constexpr auto kDelay = std::chrono::milliseconds(80);
    const FaultyBackend late(comm, {.nth = 1, .delay = kDelay, .fails = false});
    const auto begin = std::chrono::steady_clock::now();
    late.communicator().barrier();
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kDelay);
  });
}

}  // namespace
}  // namespace lockstep::testing
