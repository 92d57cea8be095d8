// Sums that stream over sockets: the bits of reduce_rows(), wherever chunks and slices end.
#include "comm/algorithms/streamed_reduction.h"
#include "comm/combined.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "comm/algorithms/ordered_reduction.h"
#include "comm/socket_ranks.h"

namespace lockstep {
namespace {

using detail::OrderedReduction;
using detail::SocketTransport;
using detail::StreamedReduction;
using test::run_each;
using test::socket_ranks;

// Of very different sizes, so that almost every other order of summing gives other bits.
at::Tensor unlike(int rank, std::int64_t numel, at::ScalarType dtype) {
  const auto x = at::arange(numel, at::kDouble) + 1 + 1000003.0 * (rank + 1);
  const auto values = (x * 0.7391).sin() * (x * 0.0137).sin().mul(4).exp();
  return (dtype == at::kBool ? values.gt(0) : values * 20).to(dtype);
}

at::Tensor combined_rows(int ranks, std::int64_t numel, at::ScalarType dtype, ReduceOp op) {
  std::vector<at::Tensor> rows;
  std::vector<const void*> memory;
  for (int rank = 0; rank < ranks; ++rank) {
    rows.push_back(unlike(rank, numel, dtype));
    memory.push_back(rows.back().const_data_ptr());
  }
  auto output = at::empty({numel}, dtype);
  detail::reduce_rows(memory, dtype, op, output.mutable_data_ptr(), static_cast<std::size_t>(numel));
  return output;
}

bool has_bits(const at::Tensor& tensor, const at::Tensor& expected) {
  return tensor.nbytes() == expected.nbytes() &&
         std::memcmp(tensor.const_data_ptr(), expected.const_data_ptr(), tensor.nbytes()) == 0;
}

class StreamedSums : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StreamedSums, ::testing::Values(2, 3, 4, 5));

TEST_P(StreamedSums, HaveTheBitsOfTheTreeInEveryDtype) {
  run_each(socket_ranks(GetParam()), [](SocketTransport& rank) {
    StreamedReduction streamed(rank);
    for (const auto dtype : test::kCollectiveDtypes) {
      const auto op = dtype == at::kBool ? ReduceOp::kMax : ReduceOp::kSum;
      for (const std::int64_t numel : {1, 2, 5, 200'003}) {
        const auto sum = unlike(rank.rank(), numel, dtype);
        streamed.all_reduce(sum, op);
        EXPECT_TRUE(has_bits(sum, combined_rows(rank.size(), numel, dtype, op))) << dtype << " " << numel;
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
      const auto sum = unlike(rank.rank(), numel, at::kFloat);
      streamed.all_reduce(sum, ReduceOp::kAvg);
      EXPECT_TRUE(has_bits(sum, combined_rows(rank.size(), numel, at::kFloat, ReduceOp::kAvg))) << numel;
    }
  });
}

TEST_P(StreamedSums, OfOneRootLeaveTheOthersTensors) {
  run_each(socket_ranks(GetParam()), [](SocketTransport& rank) {
    OrderedReduction ordered(rank);
    for (int root = 0; root < rank.size(); ++root) {
      for (const std::int64_t numel : {3, 700'001, 3'000'000}) {
        const auto sum = unlike(rank.rank(), numel, at::kHalf);
        ordered.reduce(sum, root, ReduceOp::kSum);
        const auto expected = root == rank.rank()
                                  ? combined_rows(rank.size(), numel, at::kHalf, ReduceOp::kSum)
                                  : unlike(rank.rank(), numel, at::kHalf);
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
      const auto input = unlike(rank.rank(), numel, at::kBFloat16);
      const auto output = at::zeros({part}, at::kBFloat16);
      ordered.reduce_scatter(output, input, ReduceOp::kSum);
      const auto whole = combined_rows(rank.size(), numel, at::kBFloat16, ReduceOp::kSum);
      EXPECT_TRUE(has_bits(output, whole.narrow(0, rank.rank() * part, part).clone()));
      EXPECT_TRUE(has_bits(input, unlike(rank.rank(), numel, at::kBFloat16)));
    }
  });
}

TEST(StreamedTraffic, IsWhatTheLowerBoundSays) {
  const auto ranks = socket_ranks(4);
  constexpr std::int64_t numel = 1 << 20;
  run_each(ranks, [](SocketTransport& rank) {
    StreamedReduction(rank).all_reduce(unlike(rank.rank(), numel, at::kFloat), ReduceOp::kSum);
  });
  for (const auto& rank : ranks) EXPECT_EQ(rank->bytes_sent(), 2 * 3 * numel * 4 / 4);
}

// Ranks that come late, one after the other, hold up nothing for ever.
TEST(StreamedSumsOfLateRanks, AreRight) {
  run_each(socket_ranks(3), [](SocketTransport& rank) {
    StreamedReduction streamed(rank);
    for (int round = 0; round < 6; ++round) {
      if (round % 3 == rank.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const auto sum = unlike(rank.rank(), 5'000'000, at::kFloat);
      streamed.all_reduce(sum, ReduceOp::kSum);
      EXPECT_TRUE(has_bits(sum, combined_rows(3, 5'000'000, at::kFloat, ReduceOp::kSum)));
    }
  });
}

}  // namespace
}  // namespace lockstep
