#include <lockstep/device/torch_device.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/device/accelerator.h>

#include "device/step_recording.h"

namespace lockstep {
namespace {

c10::impl::VirtualGuardImpl guard_of(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

std::atomic<at::Device> in_use = at::Device(at::kCPU);

// In the order of c10's StatArray.
constexpr std::array<const char*, 3> kPools{"all", "small_pool", "large_pool"};

// Null where the allocator keeps no statistics.
c10::DeviceAllocator* allocator_of(at::Device device) {
  if (device.is_cpu()) return nullptr;
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

// What LibTorch counts since 2.12 or so. A template, so that members that are not there are never named.
template <class Stats, class Add, class AddPools>
void add_newer(const Stats& stats, const Add& add, const AddPools& add_pools) {
  if constexpr (requires { stats.num_oom_rejections; }) add("num_oom_rejections", stats.num_oom_rejections);
  if constexpr (requires { stats.reserved_bytes_by_private_pools; }) {
    for (const auto& [pool, bytes] : stats.reserved_bytes_by_private_pools)
      add_pools(
          "reserved_bytes_by_private_pools." + std::to_string(pool.first) + "." + std::to_string(pool.second),
          bytes);
  }
}

}  // namespace

at::Device device_in_use() { return in_use; }

void make_current(at::Device device) {
  if (!device.is_cpu()) guard_of(device).setDevice(device);
}

void synchronize(at::Device device) {
  if (!device.is_cpu()) guard_of(device).synchronizeDevice(device.index());
}

DeviceMemory memory_of(at::Device device) {
  auto* const allocator = allocator_of(device);
  if (allocator == nullptr) return {};
  const auto stats = allocator->getDeviceStats(device.index());
  return {.allocated = stats.allocated_bytes[0].current,
          .peak_allocated = stats.allocated_bytes[0].peak,
          .reserved = stats.reserved_bytes[0].current};
}

std::vector<std::pair<std::string, double>> memory_stats(at::Device device) {
  std::vector<std::pair<std::string, double>> values;
  auto* const allocator = allocator_of(device);
  if (allocator == nullptr) return values;
  const auto stats = allocator->getDeviceStats(device.index());
  const auto add = [&](const std::string& name, std::int64_t value) {
    values.emplace_back(name, static_cast<double>(value));
  };
  const auto add_stat = [&](const std::string& name, const auto& stat) {
    add(name + ".current", stat.current);
    add(name + ".peak", stat.peak);
    add(name + ".allocated", stat.allocated);
    add(name + ".freed", stat.freed);
  };
  const auto add_pools = [&](const std::string& name, const auto& pools) {
    for (std::size_t i = 0; i < kPools.size(); ++i) add_stat(name + "." + kPools[i], pools[i]);
  };
  add_pools("active", stats.active);
  add_pools("active_bytes", stats.active_bytes);
  add_pools("allocated_bytes", stats.allocated_bytes);
  add_pools("allocation", stats.allocation);
  add_pools("inactive_split", stats.inactive_split);
  add_pools("inactive_split_bytes", stats.inactive_split_bytes);
  add("max_split_size", stats.max_split_size);
  add("num_alloc_retries", stats.num_alloc_retries);
  add("num_device_alloc", stats.num_device_alloc);
  add("num_device_free", stats.num_device_free);
  add("num_ooms", stats.num_ooms);
  add("num_sync_all_streams", stats.num_sync_all_streams);
  add_stat("oversize_allocations", stats.oversize_allocations);
  add_stat("oversize_segments", stats.oversize_segments);
  add_newer(stats, add, add_pools);
  add_pools("requested_bytes", stats.requested_bytes);
  add_pools("reserved_bytes", stats.reserved_bytes);
  add_pools("segment", stats.segment);
  return values;
}

void reset_peak_memory(at::Device device) {
  if (auto* const allocator = allocator_of(device)) allocator->resetPeakStats(device.index());
}

at::Generator generator_of(at::Device device) { return at::globalContext().defaultGenerator(device); }

at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (tensor.is_cpu()) detail::refuse_in_recording("a copy from the CPU");
  if (device.is_xla()) return tensor.to(device);  // knows no page-locked memory
  const bool is_staged = tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_pinned();
  return (is_staged ? tensor.pin_memory() : tensor).to(device, /*non_blocking=*/true);
}

}  // namespace lockstep

namespace lockstep::detail {

void begin_on_device(const Accelerator& accelerator, at::Device device) {
  in_use = device;
  if (device.is_cpu()) return;
  accelerator.load();
  make_current(device);
  static std::unordered_set<at::Device> seeded;  // called by the thread that makes Trainers and Fabrics
  if (!seeded.insert(device).second) return;
  seed_generator(generator_of(device), generator_of(at::kCPU).current_seed());
}

at::Tensor state_of_generator(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state_of_generator(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void seed_generator(at::Generator generator, std::uint64_t seed) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

c10::Stream side_stream(at::Device device) {
  return guard_of(device).getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

namespace {

// A side stream of each device, for one purpose.
class OwnStreams {
 public:
  c10::Stream of(at::Device device) {
    const std::lock_guard lock(mutex_);
    const auto known = streams_.find(device);
    return known != streams_.end() ? known->second
                                   : streams_.emplace(device, side_stream(device)).first->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<at::Device, c10::Stream> streams_;
};

}  // namespace

c10::Stream staging_stream(at::Device device) {
  static OwnStreams streams;
  return streams.of(device);
}

c10::Stream offload_stream(at::Device device) {
  static OwnStreams streams;
  return streams.of(device);
}

void leave_default_stream(at::Device device) {
  static OwnStreams streams;
  if (device.is_cpu()) return;
  const auto before = current_stream(device);
  const auto stream = streams.of(device);
  order_streams(before, stream);
  guard_of(device).exchangeStream(stream);
}

c10::Stream current_stream(at::Device device) { return guard_of(device).getStream(device); }

void order_streams(const c10::Stream& earlier, const c10::Stream& later) {
  if (earlier == later) return;
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

}  // namespace lockstep::detail
