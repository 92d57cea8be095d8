// Memory of the devices: who may touch it, what it holds, and how much of it there is.
#include <fcntl.h>
#include <unistd.h>

#include <cmath>

#include <c10/core/CachingDeviceAllocator.h>

#include "sim/installed.h"

namespace lockstep::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SimMemory : public SimTest {};

// The kernel refuses what would be a fault, without a signal.
bool can_host_read(const void* memory) {
  int ends[2];
  if (::pipe(ends) != 0) return true;
  const bool can = ::write(ends[1], memory, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return can;
}

TEST_F(SimMemory, IsNotForTheHost) {
  const auto tensor = at::ones({8}, sim_floats());
  const auto host = at::ones({8});
  EXPECT_TRUE(can_host_read(host.const_data_ptr()));
  EXPECT_FALSE(can_host_read(tensor.const_data_ptr()));
  EXPECT_EQ(tensor.device(), kSim);
  EXPECT_EQ(tensor.device().str(), "sim:0");
}

TEST_F(SimMemory, IsNanUntilItIsWritten) {
  const auto is_nan = [](std::int64_t elements) {
    return on_cpu(at::empty({elements}, sim_floats())).isnan().all().item<bool>();
  };
  EXPECT_TRUE(is_nan(123'456));  // fresh
  auto tensor = at::ones({1000}, sim_floats());
  tensor.reset();
  EXPECT_TRUE(is_nan(1000));
}

TEST_F(SimMemory, IsReusedByItsStream) {
  const auto step = [] {
    const auto a = at::ones({3000}, sim_floats());
    return (a * 2 + a).sum();
  };
  step();
  const auto warm = counters();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(counters().segments, warm.segments);
  EXPECT_GT(counters().allocations, warm.allocations);
}

TEST_F(SimMemory, IsNotReusedBeforeOtherStreamsAreOver) {
  constexpr std::int64_t kUnusual = 1'234'567;  // no other test has left such memory
  const auto lend = [](bool waits) {
    const auto lent = at::ones({kUnusual}, sim_floats());
    order(stream(0, 0), stream(0, 4));
    const c10::StreamGuard guard(stream(0, 4));
    const auto sum = lent.sum();
    lent.record_stream(stream(0, 4));
    if (waits) order(stream(0, 4), stream(0, 0));
    return sum;
  };
  const auto segments_of_second = [&](bool waits) {
    const auto sum = lend(waits);
    const auto before = counters().segments;
    const auto next = at::full({kUnusual}, 7, sim_floats());
    order(stream(0, 4), stream(0, 0));
    EXPECT_EQ(on_cpu(sum).item<float>(), kUnusual);
    EXPECT_EQ(on_cpu(next)[17].item<float>(), 7);
    return counters().segments - before;
  };
  EXPECT_EQ(segments_of_second(false), 1u);
  EXPECT_EQ(segments_of_second(true), 0u);
  EXPECT_THAT(take_reports(), IsEmpty());
}

TEST_F(SimMemory, EndsAndIsCounted) {
  const auto stats = [] {
    return c10::getDeviceAllocator(kDeviceType)->getDeviceStats(0).allocated_bytes[0].current;
  };
  const auto before = stats();
  const auto tensor = at::empty({1024}, sim_floats());
  EXPECT_EQ(stats() - before, 4096);
  EXPECT_THROW(at::empty({std::int64_t{1} << 30}, sim_floats()), c10::OutOfMemoryError);
}

TEST_F(SimMemory, IsKeptByGrowingTensors) {
  auto tensor = at::ones({4}, sim_floats());
  tensor.resize_({1000});
  EXPECT_EQ(on_cpu(tensor)[3].item<float>(), 1);
}

class SimPinnedMemory : public SimTest {};

TEST_F(SimPinnedMemory, IsFilledWhenTheHostHasWaited) {
  for (const auto longest : {0, 400}) {
    set_delays(2, std::chrono::microseconds(longest));
    const auto tensor = at::full({1000}, 5, sim_floats());
    const auto pinned = at::zeros({1000}, at::TensorOptions().pinned_memory(true));
    EXPECT_TRUE(pinned.is_pinned());
    take_host_syncs();
    pinned.copy_(tensor, /*non_blocking=*/true);
    ::usleep(2000);
    EXPECT_TRUE(std::isnan(pinned[3].item<float>()));
    c10::Event event(kDeviceType);
    event.record(stream(0, 0));
    EXPECT_THAT(take_host_syncs(), IsEmpty());
    event.synchronize();
    EXPECT_EQ(pinned[3].item<float>(), 5);
    EXPECT_THAT(take_host_syncs(), ElementsAre("synchronizeEvent"));
  }
}

TEST_F(SimPinnedMemory, IsFilledForStreamsThatWait) {
  const auto from = at::arange(1000, sim_floats());
  auto to = at::zeros({1000}, sim_floats());
  {
    const auto pinned = at::zeros({1000}, at::TensorOptions().pinned_memory(true));
    pinned.copy_(from, /*non_blocking=*/true);
    order(stream(0, 0), stream(0, 2));
    const c10::StreamGuard guard(stream(0, 2));
    to.copy_(pinned, /*non_blocking=*/true);
  }  // freed while both are under way
  order(stream(0, 2), stream(0, 0));
  EXPECT_TRUE(torch::equal(on_cpu(to), at::arange(1000, at::kFloat)));
  EXPECT_THAT(take_reports(), IsEmpty());
}

TEST_F(SimPinnedMemory, IsCopiedFromAtOnceWhereItIsNotPinned) {
  auto host = at::full({1000}, 3, at::kFloat);
  auto tensor = at::empty({1000}, sim_floats());
  tensor.copy_(host, /*non_blocking=*/true);
  host.fill_(9);
  EXPECT_THAT(take_host_syncs(), IsEmpty());
  EXPECT_EQ(on_cpu(tensor)[3].item<float>(), 3);
  EXPECT_THAT(take_host_syncs(), ElementsAre("copy to the host"));
  EXPECT_EQ(counters().copies_to_device, 1u);
  EXPECT_EQ(counters().copies_to_host, 1u);
}

TEST_F(SimPinnedMemory, CarriesPartsOfTensors) {
  const auto pinned = at::arange(12, at::kFloat).view({3, 4}).pin_memory();
  const auto column = pinned.slice(1, 1, 2).to(kSim, /*non_blocking=*/true);
  EXPECT_TRUE(torch::equal(on_cpu(column), pinned.slice(1, 1, 2)));
  const auto across = at::arange(6, sim_floats()).to(c10::Device(kDeviceType, 1));
  EXPECT_TRUE(torch::equal(on_cpu(across), at::arange(6, at::kFloat)));
  EXPECT_THAT(take_reports(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::sim
