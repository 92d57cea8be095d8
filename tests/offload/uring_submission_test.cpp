// How blocks come into the ring, seen where the engine calls liburing.
#include <gtest/gtest.h>
#include <liburing.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "support/next_function.h"
#include "swap_cases.h"

namespace lockstep::offload {
namespace {

std::mutex mutex;               // guards the next
std::vector<unsigned> batches;  // how many entries the kernel got at once

void count_batch(io_uring* ring) {
  const std::scoped_lock lock(mutex);
  if (const unsigned entries = ::io_uring_sq_ready(ring)) batches.push_back(entries);
}

void forget_batches() {
  const std::scoped_lock lock(mutex);
  batches.clear();
}

}  // namespace
}  // namespace lockstep::offload

// In front of liburing's.
#pragma GCC visibility push(default)
extern "C" {
int io_uring_submit(io_uring* ring) {
  static const auto real = lockstep::test::next_function<int (*)(io_uring*)>("io_uring_submit");
  lockstep::offload::count_batch(ring);
  return real(ring);
}
int io_uring_submit_and_wait(io_uring* ring, unsigned count) {
  static const auto real =
      lockstep::test::next_function<int (*)(io_uring*, unsigned)>("io_uring_submit_and_wait");
  lockstep::offload::count_batch(ring);
  return real(ring, count);
}
}
#pragma GCC visibility pop

namespace lockstep::offload {
namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr unsigned kBlocks = 400;
constexpr unsigned kDepth = 4;

class UringSubmission : public ::testing::TestWithParam<bool> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UringSubmission);
INSTANTIATE_TEST_SUITE_P(Allowed, UringSubmission,
                         ::testing::ValuesIn(uring_is_allowed() ? std::vector<bool>{true}
                                                                : std::vector<bool>{}));

// Sizes of the batches of 400 blocks. The read of the eventfd is one more entry, now and then.
std::vector<unsigned> batches_with(SwapOptions options) {
  options.block_size = kBlock;
  options.queue_depth = kDepth;
  options.engine = EngineKind::kIoUring;
  const test::TemporaryFolder directory;
  const SwapFolder folder({.directory = directory.path()});
  SwapFile file(folder, "a", kBlocks * kBlock, options);
  AlignedBuffer buffer(kBlocks * kBlock);
  forget_batches();
  auto write = file.write(0, buffer.bytes());
  write.wait();
  const std::scoped_lock lock(mutex);
  return std::exchange(batches, {});
}

std::size_t smaller_than(const std::vector<unsigned>& sizes, unsigned limit) {
  return static_cast<std::size_t>(
      std::count_if(sizes.begin(), sizes.end(), [&](unsigned size) { return size < limit; }));
}

TEST_P(UringSubmission, IsOneByOneWhereAsked) {
  const auto sizes = batches_with({.single_submit = true, .overlap_events = false});
  EXPECT_GE(sizes.size(), kBlocks);
  EXPECT_EQ(smaller_than(sizes, 3), sizes.size()) << "a block and the eventfd at most";
  EXPECT_GT(kBlocks / 2, batches_with({.overlap_events = false}).size());
}

TEST_P(UringSubmission, WaitsForAllOfABatchWithoutOverlap) {
  const auto apart = batches_with({.overlap_events = false});
  EXPECT_LE(smaller_than(apart, kDepth), 3u)
      << "the eventfd alone, when there is something to do, and at the end";
  const auto overlapped = batches_with({});
  EXPECT_GT(smaller_than(overlapped, kDepth), 3u);
}

}  // namespace
}  // namespace lockstep::offload
