// Collectives of ranks that read each other's memory.
#include "comm/collectives/peer_memory_collectives.h"

#include <gtest/gtest.h>

#include <cstring>

#include <lockstep/testing/run_ranks.h>

namespace lockstep {
namespace {

using detail::can_read_each;
using detail::Collective;
using detail::CollectiveKind;
using detail::MemoryOwner;
using detail::PeerMemoryCollectives;
using detail::Seal;

constexpr std::int64_t kElements = 300'007;

at::Tensor number_row(int rank, std::int64_t elements = kElements) {
  return at::arange(elements, at::kFloat) + rank;
}

// Counts how often the ranks come together.
struct CountedMeetings {
  Communicator comm;
  int count = 0;

  detail::Meetings get() {
    return {.first =
                [this](std::string_view bytes, const detail::Meetings::Take& take) {
                  ++count;
                  const auto all = comm.all_gather_bytes(std::string(bytes));
                  for (int rank = 0; rank < comm.size(); ++rank) {
                    if (rank != comm.rank()) take(rank, all[static_cast<std::size_t>(rank)]);
                  }
                },
            .next =
                [this] {
                  ++count;
                  comm.barrier();
                }};
  }
};

std::vector<MemoryOwner> owners(const Communicator& comm, const Seal& seal) {
  const auto own = seal.owner();
  std::vector<MemoryOwner> all;
  for (const auto& bytes : comm.all_gather_bytes({reinterpret_cast<const char*>(&own), sizeof own}))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof own);
  return all;
}

// A rank whose memory the others read, and that reads theirs.
class PeerRank {
 public:
  explicit PeerRank(const Communicator& comm) : meetings_{.comm = comm}, peer_memory_(comm.rank(), seal_) {
    peer_memory_.open(owners(comm, seal_));
  }
  std::int64_t perform(const Collective& collective) {
    return peer_memory_.perform(collective, meetings_.get());
  }

 private:
  CountedMeetings meetings_;
  Seal seal_;
  PeerMemoryCollectives peer_memory_;
};

// What each of these makes of number_row() on all ranks, and how often the ranks meet for it.
void perform_each(const Communicator& comm, PeerMemoryCollectives& peer_memory) {
  const auto ranks = comm.size();
  CountedMeetings meetings{.comm = comm};
  const auto average = number_row(0) + (ranks - 1) / 2.0;

  const auto all = number_row(comm.rank());
  peer_memory.perform({.kind = CollectiveKind::kAllReduce, .output = all, .op = ReduceOp::kAvg},
                      meetings.get());
  EXPECT_TRUE(at::allclose(all, average));
  EXPECT_EQ(meetings.count, 3);

  const auto part = at::empty({kElements}, at::kFloat);
  const auto whole = number_row(comm.rank()).repeat({ranks});
  peer_memory.perform(
      {.kind = CollectiveKind::kReduceScatter, .output = part, .input = whole, .op = ReduceOp::kAvg},
      meetings.get());
  EXPECT_TRUE(at::allclose(part, average));
  EXPECT_EQ(meetings.count, 5);

  const auto rows = at::empty({ranks, kElements}, at::kFloat);
  peer_memory.perform({.kind = CollectiveKind::kAllGather, .output = rows, .input = number_row(comm.rank())},
                      meetings.get());
  for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(at::equal(rows[rank], number_row(rank)));
  EXPECT_EQ(meetings.count, 7);

  const auto one = number_row(comm.rank());
  const auto sent =
      peer_memory.perform({.kind = CollectiveKind::kBroadcast, .output = one, .root = 1}, meetings.get());
  EXPECT_TRUE(at::equal(one, number_row(1)));
  EXPECT_EQ(sent, comm.rank() == 1 ? (ranks - 1) * kElements * 4 : 0);
  EXPECT_EQ(meetings.count, 9);
}

TEST(PeerMemoryCollectives, MeetTwiceOrThreeTimes) {
  for (const int ranks : {2, 3}) {
    testing::run_ranks(ranks, [](const Communicator& comm) {
      Seal seal;
      PeerMemoryCollectives peer_memory(comm.rank(), seal);
      EXPECT_FALSE(peer_memory.are_open());
      peer_memory.open(owners(comm, seal));
      EXPECT_TRUE(peer_memory.are_open());
      perform_each(comm, peer_memory);
    });
  }
}

// Chunks may be short, or empty.
TEST(PeerMemoryCollectives, TakeTensorsOfAnySize) {
  testing::run_ranks(3, [](const Communicator& comm) {
    PeerRank rank(comm);
    std::int64_t sent = 0;
    for (const std::int64_t elements : {0, 1, 2, 4, 31'000}) {
      const auto all = number_row(comm.rank(), elements);
      sent = rank.perform({.kind = CollectiveKind::kAllReduce, .output = all});
      EXPECT_TRUE(at::allclose(all, 3 * number_row(1, elements))) << elements;
    }
    EXPECT_NEAR(static_cast<double>(sent), 2 * 2.0 / 3 * 31'000 * sizeof(float), 16);
  });
}

// Memory of its own comes to it when it is first written: others must not read where it was.
TEST(PeerMemoryCollectives, TakeLazyClones) {
  testing::run_ranks(2, [](const Communicator& comm) {
    PeerRank rank(comm);
    const auto source = number_row(comm.rank());
    const auto clone = at::_lazy_clone(source);
    rank.perform({.kind = CollectiveKind::kAllReduce, .output = clone, .op = ReduceOp::kAvg});
    EXPECT_TRUE(at::allclose(clone, number_row(0) + 0.5));
    EXPECT_TRUE(at::equal(source, number_row(comm.rank())));
  });
}

TEST(PeerMemoryCollectives, NeedRanksThatAllReadEachOther) {
  Seal here, gone;
  auto elsewhere = here.owner();
  elsewhere.machine += 2;
  gone.revoke();
  const std::vector ranks{here.owner(), elsewhere, gone.owner()};
  EXPECT_EQ(can_read_each(ranks, 0), (std::vector<std::uint8_t>{1, 0, 0}));
  const detail::MemoryAccess some{.owners = {here.owner(), here.owner()}, .can_read_all = {1, 1, 0, 1}};
  EXPECT_TRUE(some.can_read(0, 1));
  EXPECT_FALSE(some.can_read(1, 0));
  EXPECT_FALSE(some.is_mutual());
}

// Who fails must not be read any more: what it has shown may change then.
TEST(PeerMemoryCollectives, ThatFailAreTheLastOnes) {
  testing::run_ranks(2, [](const Communicator& comm) {
    Seal seal;
    PeerMemoryCollectives peer_memory(comm.rank(), seal);
    const auto ranks = owners(comm, seal);
    peer_memory.open(ranks);
    CountedMeetings meetings{.comm = comm};
    const auto uneven = at::ones({kElements + comm.rank()});
    EXPECT_THROW(peer_memory.perform({.kind = CollectiveKind::kAllReduce, .output = uneven}, meetings.get()),
                 std::runtime_error);
    comm.barrier();
    for (const auto& rank : ranks) EXPECT_FALSE(detail::can_read_memory_of(rank));
    comm.barrier();
  });
}

}  // namespace
}  // namespace lockstep
