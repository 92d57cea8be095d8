#include "offload/io_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>

namespace lockstep::offload {
namespace {

TEST(AlignedBuffer, BeginsAtAPageAndIsAMultipleOfPages) {
  for (const std::uint64_t bytes : {1ull, 4095ull, 4096ull, 4097ull, 3ull << 20, (5ull << 20) + 1}) {
    const AlignedBuffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % kAlignment, 0u) << bytes;
    EXPECT_EQ(buffer.bytes().size(), (bytes + 4095) / 4096 * 4096);
    std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{1});
  }
  EXPECT_TRUE(AlignedBuffer(0).bytes().empty());
}

TEST(AlignedBuffer, KeepsItsBytesWhenItIsMoved) {
  AlignedBuffer first(10);
  first.bytes()[0] = std::byte{7};
  const auto* const place = first.bytes().data();
  AlignedBuffer second(std::move(first));
  EXPECT_EQ(second.bytes().data(), place);
  first = std::move(second);
  EXPECT_EQ(first.bytes()[0], std::byte{7});
}

TEST(AlignedBuffer, SaysWhenThereIsNoMemory) {
  EXPECT_THROW(AlignedBuffer(std::uint64_t{1} << 60), std::bad_alloc);
  EXPECT_THROW(AlignedBuffer(~std::uint64_t{0}), std::bad_alloc);
}

}  // namespace
}  // namespace lockstep::offload
