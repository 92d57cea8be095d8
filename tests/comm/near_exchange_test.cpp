// Exchanges of ranks that read each other's memory.
#include "comm/near_exchange.h"

#include <gtest/gtest.h>

#include <cstring>

#include <lockstep/testing/run_ranks.h>

namespace lockstep {
namespace {

using detail::can_read_each;
using detail::MemoryOwner;
using detail::NearExchange;
using detail::RowSlice;
using detail::Seal;

constexpr std::int64_t kElements = 300'007;

at::Tensor number_row(int rank) { return at::arange(kElements, at::kFloat) + rank; }

detail::Meet by_gathering(const Communicator& comm) {
  return [comm](std::string_view bytes, const detail::TakeBytes& take) {
    const auto all = comm.all_gather_bytes(std::string(bytes));
    for (int rank = 0; take && rank < comm.size(); ++rank) {
      if (rank != comm.rank()) take(rank, all[static_cast<std::size_t>(rank)]);
    }
  };
}

std::vector<MemoryOwner> owners(const Communicator& comm, const Seal& seal) {
  const auto own = seal.owner();
  std::vector<MemoryOwner> all;
  for (const auto& bytes : comm.all_gather_bytes({reinterpret_cast<const char*>(&own), sizeof own}))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof own);
  return all;
}

// Slices begin where the last one ended, and have all ranks' numbers.
struct TakenSlices {
  int count = 0;
  std::size_t bytes = 0;
  bool are_right = true;

  void take(const RowSlice& slice) {
    ++count;
    are_right = are_right && slice.begin == bytes;
    bytes += slice.bytes;
    for (std::size_t rank = 0; rank < slice.rows.size(); ++rank) {
      const auto* const row = static_cast<const float*>(slice.rows[rank]);
      for (std::size_t i = 0; i < slice.bytes / sizeof(float); ++i)
        are_right = are_right && row[i] == static_cast<float>(slice.begin / sizeof(float) + i + rank);
    }
  }
};

TEST(NearExchange, HandsOutSlicesAsTheyAreRead) {
  for (const int ranks : {2, 3}) {
    testing::run_ranks(ranks, [](const Communicator& comm) {
      Seal seal;
      NearExchange exchange(comm.rank(), seal);
      exchange.meet_by(by_gathering(comm));
      EXPECT_FALSE(exchange.takes(1 << 30));
      exchange.open(owners(comm, seal));
      EXPECT_TRUE(exchange.takes(1 << 30));
      EXPECT_FALSE(exchange.takes(100));
      const std::vector<at::Tensor> to(static_cast<std::size_t>(comm.size()), number_row(comm.rank()));
      for (int round = 0; round < 2; ++round) {
        TakenSlices taken;
        exchange.run(to, [&](const RowSlice& slice) { taken.take(slice); });
        EXPECT_TRUE(taken.are_right);
        EXPECT_EQ(taken.bytes, kElements * sizeof(float));
        EXPECT_GT(taken.count, 8);
      }
    });
  }
}

TEST(NearExchange, NeedsRanksThatAllReadEachOther) {
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

// Who fails must not be read any more: what it has given may change then.
TEST(NearExchange, ThatFailsIsTheLastOne) {
  testing::run_ranks(2, [](const Communicator& comm) {
    Seal seal;
    NearExchange exchange(comm.rank(), seal);
    const auto ranks = owners(comm, seal);
    exchange.meet_by(by_gathering(comm));
    exchange.open(ranks);
    const std::vector<at::Tensor> to(2, at::ones({kElements + comm.rank()}));
    EXPECT_THROW(exchange.run(to, [](const RowSlice&) {}), std::runtime_error);
    comm.barrier();
    for (const auto& rank : ranks) EXPECT_FALSE(detail::can_read_memory_of(rank));
    comm.barrier();
  });
}

}  // namespace
}  // namespace lockstep
