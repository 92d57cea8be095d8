#include "offload/mapped_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/temporary_folder.h"

namespace lockstep::offload {
namespace {

TEST(MappedPool, TakesWhatWasGivenBack) {
  const test::TemporaryFolder place;
  MappedPool pool(SwapFolder({.directory = place.path()}));
  auto memory = pool.take(100'000);
  const auto* const address = memory->bytes().data();
  EXPECT_GE(memory->bytes().size(), 100'000U);
  std::ranges::fill(memory->bytes(), std::byte{7});
  pool.give_back(std::move(memory));
  EXPECT_EQ(pool.bytes_in_use(), 0U);
  EXPECT_EQ(pool.take(60'000)->bytes().data(), address);
}

TEST(MappedPool, WastesLessThanHalf) {
  const test::TemporaryFolder place;
  MappedPool pool(SwapFolder({.directory = place.path()}));
  auto large = pool.take(1 << 20);
  const auto* const address = large->bytes().data();
  pool.give_back(std::move(large));
  const auto small = pool.take(1 << 18);
  EXPECT_EQ(small->bytes().size(), 1U << 18);
  EXPECT_NE(small->bytes().data(), address);
}

TEST(MappedPool, KeepsNoMoreThanWasInUseAtOnce) {
  const test::TemporaryFolder place;
  MappedPool pool(SwapFolder({.directory = place.path()}));
  for (std::uint64_t size = 1 << 14; size <= 1 << 22; size *= 4) {
    pool.give_back(pool.take(size));
    EXPECT_LE(pool.bytes_unused(), size);
  }
}

TEST(MappedPool, LeavesNoFilesByName) {
  const test::TemporaryFolder place;
  MappedPool pool(SwapFolder({.directory = place.path()}));
  const auto memory = pool.take(1);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place.path()))
    EXPECT_FALSE(entry.is_regular_file() && entry.file_size() > 0) << entry.path();
}

}  // namespace
}  // namespace lockstep::offload
