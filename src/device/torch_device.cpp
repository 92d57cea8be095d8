#include <lockstep/device/torch_device.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/device/accelerator.h>

namespace lockstep {
namespace {

c10::impl::VirtualGuardImpl guard_of(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

std::atomic<at::Device> in_use = at::Device(at::kCPU);

// Null where the allocator keeps no statistics.
c10::DeviceAllocator* allocator_of(at::Device device) {
  if (device.is_cpu()) return nullptr;
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
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

void reset_peak_memory(at::Device device) {
  if (auto* const allocator = allocator_of(device)) allocator->resetPeakStats(device.index());
}

at::Generator generator_of(at::Device device) { return at::globalContext().defaultGenerator(device); }

at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
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

c10::Stream staging_stream(at::Device device) {
  static std::mutex mutex;
  static std::unordered_map<at::Device, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto known = streams.find(device);
  return known != streams.end() ? known->second : streams.emplace(device, side_stream(device)).first->second;
}

c10::Stream current_stream(at::Device device) { return guard_of(device).getStream(device); }

void order_streams(const c10::Stream& earlier, const c10::Stream& later) {
  if (earlier == later) return;
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

}  // namespace lockstep::detail
