// The devices as LibTorch sees them: guards of devices and streams, events, and the hooks of PrivateUse1.
#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <span>

#include "sim/capture.h"
#include "sim/generator.h"
#include "sim/operators.h"
#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr int kPoolStreams = 14;

// Calls as addr2line takes them.
std::string describe_wait(const EventPtr& event, int stream, std::span<void* const> calls) {
  auto text = stream_name(stream) + " waits for " + stream_name(event->stream) + ", called from";
  for (auto* const call : calls) {
    Dl_info info{};
    if (::dladdr(call, &info) == 0) continue;
    char offset[32];
    std::snprintf(offset, sizeof offset, "+0x%tx",
                  static_cast<char*>(call) - static_cast<char*>(info.dli_fbase));
    const std::string file = info.dli_fname;
    text += " " + file.substr(file.rfind('/') + 1) + offset;
  }
  return text;
}

EventPtr& event_of(void* event) { return *static_cast<EventPtr*>(event); }

constexpr int kCallsOfPlace = 5;  // those of an engine or of a group, whatever led there

// Of those that order nothing new none is counted, and none need be left out.
bool is_dropped_wait(const EventPtr& event, int stream) {
  std::array<void*, kCallsOfPlace> calls{};
  const int depth = ::backtrace(calls.data(), kCallsOfPlace);
  auto& all = runtime();
  const std::lock_guard lock(all.mutex);
  if (!orders_anything(event, stream)) return false;
  std::uint64_t place = 0;
  for (int i = 0; i < depth; ++i) place = place * 1099511628211U + reinterpret_cast<std::uintptr_t>(calls[i]);
  auto& text = all.wait_places[place];
  if (text.empty()) text = describe_wait(event, stream, {calls.data(), static_cast<std::size_t>(depth)});
  const bool is_of_number = all.wait_to_drop == all.counters.waits++;
  return is_of_number || all.place_to_drop == place;
}

class SimGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr auto static_type = kDeviceType;  // for DeviceGuardImplRegistrar

  c10::DeviceType type() const override { return kDeviceType; }
  DeviceIndex deviceCount() const noexcept override {
    return is_installed() ? static_cast<DeviceIndex>(runtime().options.devices) : DeviceIndex{0};
  }
  Device getDevice() const override { return full(Device(kDeviceType)); }
  Device exchangeDevice(Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(Device device) const override {
    if (device.has_index()) exchange_device(device.index());
  }
  void uncheckedSetDevice(Device device) const noexcept override { setDevice(device); }

  Stream getStream(Device device) const override {
    const int current = current_stream(full(device).index());
    return sim::stream(full(device).index(), current % kStreamsPerDevice);
  }
  Stream getDefaultStream(Device device) const override { return sim::stream(full(device).index(), 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    static std::atomic<int> next = 0;
    return sim::stream(full(device).index(), 1 + next++ % kPoolStreams);
  }
  Stream getNewStream(Device device, int) const override { return getStreamFromGlobalPool(device, false); }
  Stream exchangeStream(Stream s) const override {
    return sim::stream(s.device_index(), exchange_stream(s.device_index(), static_cast<int>(s.id())));
  }
  // For own_kernels.cpp; never null.
  void* getStreamNativeHandle(const Stream s) const override {
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(stream_id(s) + 1));
  }
  bool queryStream(const Stream& s) const override {
    const auto event = std::make_shared<Event>();
    sim::record(event, stream_id(s));
    return query(event);
  }
  void synchronizeStream(const Stream& s) const override {
    note_host_sync("synchronizeStream");
    wait_for_stream(stream_id(s));
  }
  // No override: LibTorch has it since 2.13.
  bool isStreamCapturing(const Stream& s) const {
    const std::lock_guard lock(runtime().mutex);
    return is_captured(stream_id(s));
  }
  void synchronizeDevice(DeviceIndex device) const override {
    note_host_sync("synchronizeDevice");
    wait_for_device(device);
  }

  void record(void** event, const Stream& s, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new EventPtr(std::make_shared<Event>());
    sim::record(event_of(*event), stream_id(s));
  }
  void block(void* event, const Stream& s) const override {
    if (event != nullptr && !is_dropped_wait(event_of(event), stream_id(s)))
      wait_on_stream(event_of(event), stream_id(s));
  }
  bool queryEvent(void* event) const override { return event == nullptr || query(event_of(event)); }
  void synchronizeEvent(void* event) const override {
    note_host_sync("synchronizeEvent");
    if (event != nullptr) wait_for_event(event_of(event));
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<EventPtr*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& s) const override {
    if (memory.get() != nullptr) record_stream(memory.get(), stream_id(s));
  }

 private:
  static Device full(Device device) {
    return device.has_index() ? device : Device(kDeviceType, static_cast<DeviceIndex>(current_device()));
  }
};

class SimHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return is_installed(); }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(runtime().options.devices); }
  void setCurrentDevice(DeviceIndex device) const override { exchange_device(device); }
  DeviceIndex getCurrentDevice() const override { return static_cast<DeviceIndex>(current_device()); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return static_cast<DeviceIndex>(exchange_device(device));
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* memory) const override { return is_pinned(memory); }
  Device getDeviceFromPtr(void* memory) const override {
    const auto offset = reinterpret_cast<std::uintptr_t>(memory) - runtime().space.begin();
    return {kDeviceType, static_cast<DeviceIndex>(offset / runtime().options.bytes_per_device)};
  }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return make_device_generator(device < 0 ? current_device() : device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    auto fresh = device_allocator().allocate(bytes);
    const auto kept = std::min(bytes, storage.nbytes());
    void* const from = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
    if (kept > 0 && from != nullptr) move_bytes(fresh.get(), from, kept);
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }

 private:
  static void move_bytes(void* to, const void* from, std::size_t bytes) {
    const auto span = [bytes](const void* memory, bool is_written) {
      const auto begin = reinterpret_cast<std::uintptr_t>(memory);
      return Span{.begin = begin, .end = begin + bytes, .is_written = is_written};
    };
    auto* const target = runtime().space.for_kernels(to);
    const auto* const source = runtime().space.for_kernels(from);
    enqueue(current_stream(current_device()),
            {.op = "resize_", .spans = {span(from, false), span(to, true)}, .body = [=](const Launch&) {
               std::memcpy(target, source, bytes);
             }});
  }
};

}  // namespace

void install_backend() {
  c10::register_privateuse1_backend("sim");
  c10::SetAllocator(kDeviceType, &device_allocator());
  at::setHostAllocator(kDeviceType, &pinned_allocator(), /*priority=*/1);
  static const SimGuard guard;
  static const c10::impl::DeviceGuardImplRegistrar registrar(kDeviceType, &guard);
  at::RegisterPrivateUse1HooksInterface(new SimHooks);

  static std::vector<torch::Library> libraries;
  const auto library = [](const char* name, c10::DispatchKey key) -> torch::Library& {
    return libraries.emplace_back(torch::Library::IMPL, name, key, __FILE__, __LINE__);
  };
  libraries.reserve(5);
  library("_", c10::DispatchKey::PrivateUse1)
      .fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_stream>());
  library("_", c10::DispatchKey::AutocastPrivateUse1).fallback(torch::CppFunction::makeFallthrough());
  auto& aten = library("aten", c10::DispatchKey::PrivateUse1);
  add_memory_operators(aten);
  add_copies(aten);
  add_own_operators(aten);
  add_recurrent_operators(aten, library("aten", c10::DispatchKey::AutogradPrivateUse1));
  add_autocast(library("aten", c10::DispatchKey::AutocastPrivateUse1));
}

}  // namespace lockstep::sim
