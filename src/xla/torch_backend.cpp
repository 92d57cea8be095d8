// What LibTorch asks of a kind of device: guards and streams (there is one, in which all happens in order),
// the generator, and who owns memory.
#include <algorithm>

#include <ATen/Context.h>
#include <ATen/detail/XLAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "xla/capture.h"
#include "xla/device.h"
#include "xla/generator.h"

namespace lockstep::xla {

void set_client(std::shared_ptr<const Client> client, std::optional<std::filesystem::path> cache);
Counts& counted();

namespace {

using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::Stream;

thread_local DeviceIndex current = 0;
DeviceIndex numbered_devices = 0;

Stream only_stream(Device device) { return Stream(Stream::DEFAULT, device); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  DeviceType type() const override { return c10::kXLA; }
  Device exchangeDevice(Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return {c10::kXLA, current}; }
  void setDevice(Device device) const override {
    if (device.has_index()) current = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) current = device.index();
  }
  Stream getStream(Device device) const override { return only_stream(device); }
  Stream getDefaultStream(Device device) const override { return only_stream(device); }
  Stream getNewStream(Device device, int /*priority*/) const override { return only_stream(device); }
  Stream getStreamFromGlobalPool(Device device, bool /*is_high*/) const override {
    return only_stream(device);
  }
  Stream exchangeStream(Stream stream) const override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return numbered_devices; }
  void record(void** /*event*/, const Stream&, DeviceIndex, c10::EventFlag) const override {}
  void block(void* /*event*/, const Stream&) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void destroyEvent(void* /*event*/, DeviceIndex) const noexcept override {}
  void synchronizeEvent(void* /*event*/) const override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& stream) const override { synchronize_device(stream.device_index()); }
  void synchronizeDevice(DeviceIndex device) const override {
    synchronize_device(device < 0 ? current : device);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
};

class Hooks final : public at::XLAHooksInterface {
 public:
  void init() const override {}
  bool hasXLA() const override { return is_installed(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return is_installed(); }
  std::string showConfig() const override { return "XLA through PJRT"; }
  DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  DeviceIndex getCurrentDevice() const override { return current; }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device < 0 ? current : device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return make_device_generator(device < 0 ? current : device);
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  bool isPinnedPtr(const void* /*data*/) const override { return false; }
  bool hasPrimaryContext(DeviceIndex /*device*/) const override { return is_installed(); }
};

C10_REGISTER_GUARD_IMPL(XLA, Guard)

// LibTorch wants one for each kind of device. Memory is the plug-in's: nobody allocates by it.
class NoMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t /*bytes*/) override {
    throw Error("xla", {.what = "memory of an XLA device cannot be allocated by itself",
                        .expected = "at::empty() and functions that make tensors"});
  }
  void copy_data(void* /*target*/, const void* /*source*/, std::size_t /*bytes*/) const override {
    throw Error("xla", {.what = "memory of an XLA device has no address to copy from"});
  }
};

}  // namespace

// LibTorch makes the hooks once, when somebody first asks for them.
void install(std::shared_ptr<const Client> client, std::optional<std::filesystem::path> cache,
             int device_count) {
  if (is_installed()) return;
  numbered_devices = static_cast<DeviceIndex>(std::max(device_count, client->device_count()));
  at::XLAHooksRegistry()->Register("torch_xla::detail::XLAHooks",
                                   [] { return std::unique_ptr<at::XLAHooksInterface>(new Hooks); });
  set_client(std::move(client), std::move(cache));
  static NoMemory no_memory;
  c10::SetAllocator(c10::kXLA, &no_memory);
  if (at::detail::getXLAHooks().hasXLA()) return;
  throw ConfigError("xla",
                    {.what = "LibTorch was asked for XLA before the plug-in was loaded, or has another XLA",
                     .expected = "one owner of XLA devices in a process",
                     .hint = "create the Trainer or Fabric first, and do not load torch_xla beside it"});
}

namespace {
Fallback fallback = Fallback::kCpu;
}  // namespace

void set_fallback(Fallback chosen) { fallback = chosen; }

void note_fallback(const std::string& name) {
  refuse_in_capture(name + " runs on the CPU");
  {
    const std::lock_guard lock(device_mutex());
    ++counted().on_cpu[name];
  }
  if (fallback == Fallback::kError)
    throw Error("xla", {.what = "the operator " + name + " has no lowering to XLA for these arguments",
                        .expected = "operators that docs/xla.md of the sources lists",
                        .hint = "let it run on the CPU: LOCKSTEP_XLA_FALLBACK=cpu"});
  warn_once("xla.fallback " + name,
            "XLA: " + name + " runs on the CPU, which ends the program before it and copies its tensors");
}

}  // namespace lockstep::xla
