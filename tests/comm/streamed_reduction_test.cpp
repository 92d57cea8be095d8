// Sums that stream over sockets: the bits of reduce_rows(), wherever chunks and slices end.
#include "comm/algorithms/streamed_reduction.h"
#include "comm/combined.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "comm/algorithms/ordered_reduction.h"
#include "comm/socket_ranks.h"
#include "comm/unlike_values.h"

namespace lockstep {
namespace {

using detail::OrderedReduction;
using detail::SocketTransport;
using detail::StreamedReduction;
using test::has_bits;
using test::reduced_values;
using test::run_each;
using test::socket_ranks;
using test::unlike_values;

class StreamedSums : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StreamedSums, ::testing::Values(2, 3, 4, 5));

TEST_P(StreamedSums, HaveTheBitsOfTheTreeInEveryDtype) {
  run_each(socket_ranks(GetParam()), [](SocketTransport& rank) {
    StreamedReduction streamed(rank);
    for (const auto dtype : test::kCollectiveDtypes) {
      const auto op = dtype == at::kBool ? ReduceOp::kMax : ReduceOp::kSum;
      for (const std::int64_t numel : {1, 2, 5, 200'003}) {
        const auto sum = unlike_values(rank.rank(), numel, dtype);
        streamed.all_reduce(sum, op);
        EXPECT_TRUE(has_bits(sum, reduced_values(rank.size(), numel, dtype, op))) << dtype << " " << numel;
      }
    }
  });
}

// Chunks have 256 KiB among two ranks, of a slice that is half of the tensor.
TEST_P(StreamedSums, HaveThemWhereverChunksEnd) {
  run_each(socket_ranks(GetParam()), [](SocketTransport& rank) {
    StreamedReduction streamed(rank);
    const std::int64_t chunk = (256 << 10) / 4;
    for (const std::int64_t numel : {chunk - 1, 2 * chunk, 2 * chunk + 1, 17 * chunk + 3, 40 * chunk}) {
      const auto sum = unlike_values(rank.rank(), numel, at::kFloat);
      streamed.all_reduce(sum, ReduceOp::kAvg);
      EXPECT_TRUE(has_bits(sum, reduced_values(rank.size(), numel, at::kFloat, ReduceOp::kAvg))) << numel;
    }
  });
}

TEST_P(StreamedSums, OfOneRootLeaveTheOthersTensors) {
  run_each(socket_ranks(GetParam()), [](SocketTransport& rank) {
    OrderedReduction ordered(rank);
    for (int root = 0; root < rank.size(); ++root) {
      for (const std::int64_t numel : {3, 700'001, 3'000'000}) {
        const auto sum = unlike_values(rank.rank(), numel, at::kHalf);
        ordered.reduce(sum, root, ReduceOp::kSum);
        const auto expected = root == rank.rank()
                                  ? reduced_values(rank.size(), numel, at::kHalf, ReduceOp::kSum)
                                  : unlike_values(rank.rank(), numel, at::kHalf);
        EXPECT_TRUE(has_bits(sum, expected)) << numel;
      }
    }
  });
}

TEST_P(StreamedSums, AreScatteredAndLeaveTheInput) {
  run_each(socket_ranks(GetParam()), [](SocketTransport& rank) {
    OrderedReduction ordered(rank);
    for (const std::int64_t part : {1, 99'999, 500'000}) {
      const auto numel = part * rank.size();
      const auto input = unlike_values(rank.rank(), numel, at::kBFloat16);
      const auto output = at::zeros({part}, at::kBFloat16);
      ordered.reduce_scatter(output, input, ReduceOp::kSum);
      const auto whole = reduced_values(rank.size(), numel, at::kBFloat16, ReduceOp::kSum);
      EXPECT_TRUE(has_bits(output, whole.narrow(0, rank.rank() * part, part).clone()));
      EXPECT_TRUE(has_bits(input, unlike_values(rank.rank(), numel, at::kBFloat16)));
    }
  });
}

TEST(StreamedTraffic, IsWhatTheLowerBoundSays) {
  const auto ranks = socket_ranks(4);
  constexpr std::int64_t numel = 1 << 20;
  run_each(ranks, [](SocketTransport& rank) {
    StreamedReduction(rank).all_reduce(unlike_values(rank.rank(), numel, at::kFloat), ReduceOp::kSum);
  });
  for (const auto& rank : ranks) EXPECT_EQ(rank->bytes_sent(), 2 * 3 * numel * 4 / 4);
}

// Ranks that come late, one after the other, hold up nothing for ever.
TEST(StreamedSumsOfLateRanks, AreRight) {
  run_each(socket_ranks(3), [](SocketTransport& rank) {
    StreamedReduction streamed(rank);
    for (int round = 0; round < 6; ++round) {
      if (round % 3 == rank.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const auto sum = unlike_values(rank.rank(), 5'000'000, at::kFloat);
      streamed.all_reduce(sum, ReduceOp::kSum);
      EXPECT_TRUE(has_bits(sum, reduced_values(3, 5'000'000, at::kFloat, ReduceOp::kSum)));
    }
  });
}

}  // namespace
}  // namespace lockstep
