// How parameters are cut into shards.
#include <gtest/gtest.h>

#include <numeric>

#include <lockstep/optim/grad_norm.h>

#include "parallel/sharded/shard_layout.h"

namespace lockstep::detail {
namespace {

void expect_covers(const std::vector<std::int64_t>& sizes, int shards) {
  const ShardLayout layout(sizes, shards);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::int64_t next = 0;
    for (int shard = 0; shard < shards; ++shard) {
      const auto& piece = layout.pieces(shard)[i];
      EXPECT_EQ(piece.parameter, i);
      if (piece.count == 0) continue;
      EXPECT_EQ(piece.begin, next) << "parameter " << i << " in shard " << shard;
      EXPECT_EQ(shard * layout.shard_elements() + piece.offset, layout.offset(i) + piece.begin);
      EXPECT_LE(piece.offset + piece.count, layout.shard_elements());
      if (next + piece.count < sizes[i]) {
        EXPECT_EQ((piece.begin + piece.count) % kGradNormBlock, 0);
      }
      next += piece.count;
    }
    EXPECT_EQ(next, sizes[i]) << "parameter " << i << " over " << shards << " shards";
    EXPECT_EQ(layout.offset(i) % 32, 0);
  }
}

TEST(ShardLayout, CutsParametersBetweenBlocksOnly) {
  const std::vector<std::vector<std::int64_t>> cases{
      {1},          {0, 7},           {4096, 64},   {100'003, 17, 1, 999, 5000}, {1024, 1024, 1024},
      {3, 3, 3, 3}, {50'000, 50'000}, {1, 1 << 20}, {2047, 2049, 1023, 1025}};
  for (const auto& sizes : cases) {
    for (const int shards : {1, 2, 3, 4, 8}) expect_covers(sizes, shards);
  }
}

TEST(ShardLayout, WastesLittleOfALargeUnit) {
  const std::vector<std::int64_t> sizes{768 * 2304, 2304, 768 * 768, 768, 768 * 3072, 3072, 3072 * 768, 768};
  const auto sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  for (const int shards : {2, 4, 8})
    EXPECT_LT(ShardLayout(sizes, shards).total_elements(), sum + sum / 100) << shards << " shards";
}

}  // namespace
}  // namespace lockstep::detail
