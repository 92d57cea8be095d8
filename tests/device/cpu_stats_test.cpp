// CpuStats: psutil's numbers from the kernel's texts.
#include <lockstep/device/cpu_stats.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using ::testing::Pair;

TEST(CpuStats, CountsWaitingForDisksAsIdleAndGuestsOnce) {
  // user nice system idle iowait irq softirq steal guest guest_nice
  const auto before = detail::cpu_times_of("cpu  100 0 50 800 50 0 0 0 100 0\ncpu0 1 2 3\n");
  const auto now = detail::cpu_times_of("cpu  130 10 70 1000 80 5 5 0 120 0\n");
  EXPECT_EQ(before.total, 1000);
  EXPECT_EQ(before.busy, 150);
  EXPECT_EQ(detail::cpu_percent(before, now), 23.3);  // 70 of 300
  EXPECT_EQ(detail::cpu_percent(now, now), 0);
  EXPECT_EQ(detail::cpu_times_of("something else").total, 0);
}

TEST(CpuStats, CountsMemoryThatIsNotAvailable) {
  const auto [memory, swap] = detail::memory_percent_of(
      "MemTotal:       8000 kB\nMemFree:         100 kB\nMemAvailable:   6000 kB\n"
      "SwapCached:       10 kB\nSwapTotal:      1000 kB\nSwapFree:        667 kB\n");
  EXPECT_EQ(memory, 25);
  EXPECT_EQ(swap, 33.3);
  const auto [none, no_swap] = detail::memory_percent_of("MemTotal: 0 kB\n");
  EXPECT_EQ(none, 0);
  EXPECT_EQ(no_swap, 0);
}

TEST(CpuStats, ReadsThisMachine) {
  CpuStats stats;
  const auto percent = AllOf(Ge(0), Le(100));
  EXPECT_THAT(stats.read(), ElementsAre(Pair("cpu_percent", percent), Pair("cpu_vm_percent", percent),
                                        Pair("cpu_swap_percent", percent)));
}

}  // namespace
}  // namespace lockstep
