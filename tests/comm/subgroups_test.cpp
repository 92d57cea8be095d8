// Groups of some of a group's ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include <lockstep/base/error.h>

#include "comm/communicator_contract.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::run_ranks;

int sum_of_ranks(const Communicator& group, int global_rank) {
  const auto tensor = at::full({50'000}, global_rank, at::kInt);
  group.all_reduce(tensor);
  return tensor[49'999].item<int>();
}

TEST(Subgroups, HaveTheListedRanksInAscendingOrder) {
  run_ranks(4, [](const Communicator& comm) {
    const auto group = comm.new_group({3, 0, 2});
    ASSERT_EQ(group.has_value(), comm.rank() != 1);
    EXPECT_THAT(comm.global_ranks(), ElementsAre(0, 1, 2, 3));
    if (!group) return;
    EXPECT_EQ(group->size(), 3);
    EXPECT_THAT(group->global_ranks(), ElementsAre(0, 2, 3));
    EXPECT_EQ(group->global_rank(group->rank()), comm.rank());
    EXPECT_EQ(group->backend(), "sockets");
    EXPECT_EQ(group->timeout(), comm.timeout());
    EXPECT_EQ(sum_of_ranks(*group, comm.rank()), 5);
    const auto root = at::full({1}, comm.rank(), at::kInt);
    group->broadcast(root, 1);
    EXPECT_EQ(root.item<int>(), 2);
    group->close();
  });
}

// A row and a column per rank, and everybody: all of them at work at once.
TEST(Subgroups, MayOverlapAndWorkBesideEachOther) {
  run_ranks(4, [](const Communicator& comm) {
    std::vector<Communicator> groups{comm};
    for (const auto& ranks : std::vector<std::vector<int>>{{0, 1}, {2, 3}, {0, 2}, {1, 3}, {0, 1, 2, 3}}) {
      if (const auto group = comm.new_group(ranks)) groups.push_back(*group);
    }
    ASSERT_EQ(groups.size(), 4);
    std::vector<at::Tensor> sums;
    std::vector<Work> works;
    for (int i = 0; i < 5; ++i) {
      for (const auto& group : groups) {
        sums.push_back(at::full({20'000}, comm.rank(), at::kInt));
        works.push_back(group.all_reduce_async(sums.back()));
      }
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      int expected = 0;
      for (const int rank : groups[i % groups.size()].global_ranks()) expected += rank;
      EXPECT_EQ(sums[i][19'999].item<int>(), expected) << i;
    }
    for (const auto& group : groups) group.close();
  });
}

TEST(Subgroups, SplitByColorAndKey) {
  run_ranks(4, [](const Communicator& comm) {
    const auto parity = comm.split(comm.rank() % 2, -comm.rank());
    ASSERT_TRUE(parity.has_value());
    if (comm.rank() % 2 == 0) {
      EXPECT_THAT(parity->global_ranks(), ElementsAre(2, 0));
    } else {
      EXPECT_THAT(parity->global_ranks(), ElementsAre(3, 1));
    }
    EXPECT_EQ(parity->global_rank(parity->rank()), comm.rank());
    EXPECT_EQ(sum_of_ranks(*parity, comm.rank()), comm.rank() % 2 ? 4 : 2);
    const auto some = comm.split(comm.rank() < 3 ? 5 : -1);
    ASSERT_EQ(some.has_value(), comm.rank() < 3);
    if (some) {
      EXPECT_THAT(some->global_ranks(), ElementsAre(0, 1, 2));
    }
  });
}

TEST(Subgroups, OfASubgroupKnowTheRanksOfTheJob) {
  run_ranks(4, [](const Communicator& comm) {
    const auto outer = comm.new_group({1, 2, 3});
    if (!outer) return;
    const auto inner = outer->new_group({0, 2});
    ASSERT_EQ(inner.has_value(), comm.rank() != 2);
    if (!inner) return;
    EXPECT_THAT(inner->global_ranks(), ElementsAre(1, 3));
    EXPECT_EQ(sum_of_ranks(*inner, comm.rank()), 4);
  });
}

TEST(Subgroups, OfOneRankAreWorldsOfOne) {
  run_ranks(2, [](const Communicator& comm) {
    const auto alone = comm.split(comm.rank());
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(alone->backend(), "single");
    EXPECT_THAT(alone->global_ranks(), ElementsAre(comm.rank()));
    EXPECT_EQ(sum_of_ranks(*alone, comm.rank()), comm.rank());
    EXPECT_TRUE(comm.new_group({1}).has_value() == (comm.rank() == 1));
  });
  const Communicator single;
  EXPECT_EQ(single.new_group({0})->size(), 1);
  EXPECT_EQ(single.split(3)->size(), 1);
  EXPECT_FALSE(single.split(-1).has_value());
  EXPECT_THROW((void)single.new_group({1}), CommError);
}

TEST(Subgroups, BadListsAreNamed) {
  run_ranks(3, [](const Communicator& comm) {
    test::expect_error<CommError>([&] { (void)comm.new_group({}); }, {"new_group", "empty", "0 to 2"});
    test::expect_error<CommError>(
        [&] {
          (void)comm.new_group({0, 3});
        },
        {"rank is not in the group", "{0, 3}"});
    test::expect_error<CommError>([&] { (void)comm.new_group({-1}); }, {"rank is not in the group", "{-1}"});
    test::expect_error<CommError>([&] { (void)comm.new_group({1, 0, 1}); }, {"twice", "{0, 1, 1}"});
    const std::vector<int> mine = comm.rank() == 2 ? std::vector<int>{0, 2} : std::vector<int>{0, 1};
    try {
      (void)comm.new_group(mine);
      ADD_FAILURE();
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("disagree on the list of ranks; expected the same list on every "
                                          "rank; got ranks 0, 1: {0, 1}; rank 2: {0, 2}"));
      EXPECT_THAT(error.ranks(), ElementsAre(2));
    }
    EXPECT_EQ(comm.new_group({0, 2}).has_value(), comm.rank() != 1);
  });
}

// The other rank of the group stays away, then leaves.
TEST(Subgroups, ErrorsNameTheRanksOfTheJob) {
  run_ranks(3, [](const Communicator& comm) {
    auto group = comm.new_group({1, 2});
    if (comm.rank() == 1) {
      test::expect_error<Timeout>([&] { group->monitored_barrier(std::chrono::milliseconds(100)); },
                                  {"rank 2 did not come to monitored_barrier", "at rank 1"});
    }
    comm.barrier();
    if (comm.rank() == 2) group.reset();
    if (comm.rank() == 1) {
      test::expect_error<PeerLost>(
          [&] { group->barrier(); },
          {"rank 2 left the group", "at rank 1, in barrier of group {1, 2} (no. 1) seq 1"});
      test::expect_error<PeerLost>([&] { group->send(at::ones({1}), 1); }, {"rank 2"});
    }
    comm.barrier();
  });
}

TEST(Subgroups, ErrorsNameRootsByTheirNumberInTheJob) {
  run_ranks(3, [](const Communicator& comm) {
    const auto group = comm.new_group({1, 2});
    if (!group) return;
    test::expect_error<CollectiveMismatch>([&] { group->broadcast(at::ones({4}), group->rank()); },
                                           {"rank 1: broadcast(root 1)", "rank 2: broadcast(root 2)"});
  });
}

// Two threads per rank, the second of which issues its first collective late: nobody knows of it until then.
TEST(Subgroups, AThreadThatComesLateMayFreeTheOther) {
  run_ranks(2, [](const Communicator& comm) {
    const auto first = comm.new_group({0, 1}), second = comm.new_group({0, 1});
    comm.barrier();
    const auto& mine = comm.rank() == 0 ? first : second;
    const auto& other = comm.rank() == 0 ? second : first;
    std::jthread late([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      other->all_reduce(at::ones({4}));
    });
    mine->all_reduce(at::ones({4}));
  });
}

// The same without the late threads: groups of the same ranks are told apart by their number.
TEST(Subgroups, ThatAreTakenInAnotherOrderAreNamed) {
  run_ranks(2, [](const Communicator& comm) {
    const auto first = comm.new_group({0, 1}), second = comm.new_group({0, 1});
    comm.barrier();
    const auto& mine = comm.rank() == 0 ? first : second;
    test::expect_error<CollectiveMismatch>(
        [&] { mine->all_reduce(at::ones({4})); },
        {"wait for each other in different collectives",
         "rank 0: all_reduce(sum) of float32 [4] of group {0, 1} (no. 1)",
         "rank 1: all_reduce(sum) of float32 [4] of group {0, 1} (no. 2)"});
  });
}

TEST(Subgroups, CountTheirOwnCollectives) {
  run_ranks(2, [](const Communicator& comm) {
    for (int i = 0; i < 5; ++i) comm.barrier();
    const auto group = comm.new_group({0, 1});
    Work work;
    if (comm.rank() == 0) {
      work = group->all_reduce_async(at::ones({3}));
      while (group->activity().empty()) std::this_thread::yield();
      EXPECT_EQ(group->activity(), "all_reduce seq 1");
    }
    comm.barrier();
    if (comm.rank() == 1) work = group->all_reduce_async(at::ones({3}));
    work.wait();
  });
}

TEST(Subgroups, AndParentsMayCloseInEitherOrder) {
  for (const bool is_parent_first : {false, true}) {
    run_ranks(3, [=](const Communicator& comm) {
      const auto group = comm.new_group({0, 1});
      if (is_parent_first) comm.close();
      if (group) {
        EXPECT_EQ(sum_of_ranks(*group, comm.rank()), 1);
        group->close();
        EXPECT_THROW(group->barrier(), CommError);
      }
      if (!is_parent_first) comm.barrier();
    });
  }
}

long open_descriptors() {
  long count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(Subgroups, LeaveNoDescriptorBehind) {
  run_ranks(2, [](const Communicator& comm) {
    const auto use_group = [&](bool closes) {
      const auto group = comm.new_group({0, 1});
      group->barrier();
      if (closes) group->close();
      comm.barrier();
    };
    // The ranks are threads of one process, and counting opens a descriptor: one rank counts alone.
    for (int i = 0; i < 4; ++i) use_group(true);  // by then the job's own segment is open
    const auto before = comm.rank() == 0 ? open_descriptors() : 0;
    comm.barrier();
    for (int i = 0; i < 10; ++i) use_group(i % 2 == 0);
    if (comm.rank() == 0) {
      auto after = open_descriptors();
      // The threads of ranks let go of theirs a little later.
      for (int i = 0; i < 500 && after > before; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        after = open_descriptors();
      }
      EXPECT_LE(after, before);
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace lockstep
