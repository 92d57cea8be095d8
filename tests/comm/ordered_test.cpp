// Ordered sums: the bits of the reference tree, whatever the number of ranks, the length and the way
// tensors were cut.
#include <gtest/gtest.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/testing/run_ranks.h>

namespace lockstep {
namespace {

using testing::run_ranks;

// Values of very different sizes, so that almost every other order of summing gives other bits.
at::Tensor unalike_values(int rank, std::int64_t numel, at::ScalarType dtype) {
  const auto x = at::arange(numel, at::kDouble) + 1 + 1000003.0 * (rank + 1);
  return ((x * 0.7391).sin() * (x * 0.0137).sin().mul(6).exp()).to(dtype);
}

// Neighbours in pairs, then pairs of pairs, an odd one carried up; in `wide`, rounded once.
at::Tensor tree_sum(int ranks, std::int64_t numel, at::ScalarType dtype, at::ScalarType wide) {
  std::vector<at::Tensor> level;
  for (int rank = 0; rank < ranks; ++rank) level.push_back(unalike_values(rank, numel, dtype).to(wide));
  while (level.size() > 1) {
    std::vector<at::Tensor> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = next;
  }
  return level[0];
}

class OrderedSums : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OrderedSums, ::testing::Values(1, 2, 3, 5, 8));

TEST_P(OrderedSums, AllReduceHasTheBitsOfTheTree) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    for (const std::int64_t numel : {1, 7, 1023, 100003}) {
      for (const auto& [dtype, wide] :
           {std::pair{at::kFloat, at::kFloat}, std::pair{at::kDouble, at::kDouble},
            std::pair{at::kBFloat16, at::kFloat}, std::pair{at::kHalf, at::kFloat}}) {
        const auto tree = tree_sum(comm.size(), numel, dtype, wide);
        const auto sum = unalike_values(comm.rank(), numel, dtype);
        comm.all_reduce(sum);
        EXPECT_TRUE(sum.equal(tree.to(dtype))) << dtype << " numel " << numel;
        const auto average = unalike_values(comm.rank(), numel, dtype);
        comm.all_reduce(average, ReduceOp::kAvg);
        EXPECT_TRUE(average.equal((tree / comm.size()).to(dtype))) << dtype << " numel " << numel;
      }
    }
  });
}

TEST_P(OrderedSums, ReduceScatterAndAsynchronousHaveTheSameBits) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    const std::int64_t part = 12503;
    const auto whole = part * comm.size();
    const auto tree = tree_sum(comm.size(), whole, at::kFloat, at::kFloat);
    const auto output = at::zeros({part});
    const auto work = comm.reduce_scatter_async(output, unalike_values(comm.rank(), whole, at::kFloat));
    const auto sum = unalike_values(comm.rank(), whole, at::kFloat);
    comm.all_reduce_async(sum).wait();
    work.wait();
    EXPECT_TRUE(sum.equal(tree));
    EXPECT_TRUE(output.equal(tree.narrow(0, comm.rank() * part, part)));
  });
}

// More than one piece, the last of them uneven; at an odd offset; and cut in two by the caller.
TEST(OrderedSums, BitsDoNotDependOnPosition) {
  constexpr std::int64_t numel = 2'200'011;
  const auto tree = tree_sum(3, numel, at::kFloat, at::kFloat);
  run_ranks(3, [&](const Communicator& comm) {
    const auto mine = unalike_values(comm.rank(), numel, at::kFloat);
    const auto shifted = at::empty({numel + 3}).narrow(0, 3, numel).copy_(mine);
    comm.all_reduce(shifted);
    EXPECT_TRUE(shifted.equal(tree));
    comm.all_reduce(mine.narrow(0, 0, 4097));
    comm.all_reduce(mine.narrow(0, 4097, numel - 4097));
    EXPECT_TRUE(mine.equal(tree));
  });
}

TEST(OrderedSums, MinAndMaxKeepNaN) {
  run_ranks(3, [](const Communicator& comm) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const auto op : {ReduceOp::kMin, ReduceOp::kMax}) {
      for (int culprit = 0; culprit < 3; ++culprit) {
        const auto tensor = at::full({2}, comm.rank() + 1.0, at::kFloat);
        if (comm.rank() == culprit) tensor[1] = nan;
        comm.all_reduce(tensor, op);
        EXPECT_EQ(tensor[0].item<float>(), op == ReduceOp::kMin ? 1 : 3);
        EXPECT_TRUE(tensor[1].isnan().item<bool>());
      }
    }
  });
}

TEST(OrderedSums, IntegersWrapAround) {
  run_ranks(2, [](const Communicator& comm) {
    const auto tensor = at::full({3}, std::numeric_limits<std::int64_t>::max(), at::kLong);
    comm.all_reduce(tensor);
    EXPECT_EQ(tensor[0].item<std::int64_t>(), -2);
    const auto small = at::full({3}, 200, at::kByte);
    comm.all_reduce(small);
    EXPECT_EQ(small[0].item<int>(), 400 - 256);
  });
}

}  // namespace
}  // namespace lockstep
