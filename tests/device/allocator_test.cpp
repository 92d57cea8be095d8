// What is asked of LibTorch's allocator of a device: a stand-in for that of a kind of device that nobody has.
#include <lockstep/device/allocator.h>

#include <gmock/gmock.h>

#include <map>
#include <string>

#include <c10/core/CachingDeviceAllocator.h>
#include <lockstep/device/torch_device.h>

namespace lockstep {
namespace {

constexpr auto kAbsent = c10::DeviceType::HPU;

struct CountingAllocator : c10::DeviceAllocator {
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*memory*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override { ++resets; }
  c10::DataPtr allocate(std::size_t /*bytes*/) override { return {}; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}

  c10::CachingDeviceAllocator::DeviceStats stats = {};
  int resets = 0;
};

struct TellingAllocator final : CountingAllocator {
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {7U + static_cast<std::size_t>(device), 100U};
  }
};

TEST(Allocators, TellOfTheWholeDeviceWhereTheyCan) {
  static TellingAllocator telling;
  static CountingAllocator silent;
  c10::SetAllocator(kAbsent, &telling, /*priority=*/1);
  EXPECT_EQ(capacity_of({kAbsent, 2}).free, 9);
  EXPECT_EQ(capacity_of({kAbsent, 2}).total, 100);
  c10::SetAllocator(kAbsent, &silent, /*priority=*/2);
  EXPECT_EQ(capacity_of({kAbsent, 0}).total, 0);
  EXPECT_EQ(capacity_of(c10::Device(c10::kCPU)).total, 0);
}

TEST(Allocators, StatisticsHavePyTorchsNames) {
  static CountingAllocator allocator;
  c10::SetAllocator(kAbsent, &allocator, /*priority=*/3);
  allocator.stats.allocated_bytes[0].increase(5);
  allocator.stats.allocated_bytes[2].increase(4);
  allocator.stats.num_ooms = 3;
  allocator.stats.num_oom_rejections = 2;
  allocator.stats.reserved_bytes_by_private_pools[{0, 7}][0].increase(6);
  const auto listed = memory_stats({kAbsent, 0});
  const std::map<std::string, double> stats(listed.begin(), listed.end());
  EXPECT_EQ(stats.size(), listed.size()) << "no name twice";
  EXPECT_EQ(stats.at("allocated_bytes.all.current"), 5);
  EXPECT_EQ(stats.at("allocated_bytes.large_pool.peak"), 4);
  EXPECT_EQ(stats.at("num_ooms"), 3);
  EXPECT_EQ(stats.at("num_oom_rejections"), 2);
  EXPECT_EQ(stats.at("reserved_bytes_by_private_pools.0.7.all.current"), 6);
  for (const std::string of_pools :
       {"active", "active_bytes", "allocated_bytes", "allocation", "inactive_split", "inactive_split_bytes",
        "requested_bytes", "reserved_bytes", "segment"})
    for (const std::string pool : {"all", "small_pool", "large_pool"})
      for (const std::string kind : {"current", "peak", "allocated", "freed"})
        EXPECT_TRUE(stats.contains(of_pools + "." + pool + "." + kind)) << of_pools << pool << kind;
  for (const std::string name :
       {"max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free", "num_sync_all_streams",
        "oversize_allocations.peak", "oversize_segments.current"})
    EXPECT_TRUE(stats.contains(name)) << name;
  EXPECT_EQ(memory_of({kAbsent, 0}).allocated, 5);
  reset_peak_memory({kAbsent, 0});
  EXPECT_EQ(allocator.resets, 1);
}

}  // namespace
}  // namespace lockstep
