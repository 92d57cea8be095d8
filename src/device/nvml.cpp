#include "device/nvml.h"

#include <dlfcn.h>

#include <array>
#include <memory>

namespace lockstep::detail {
namespace {

// nvml.h, whose functions return 0 when all went well.
struct Nvml {
  using Device = void*;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;

  bool is_complete() const { return init && shutdown && count && device && uuid; }
};

constexpr std::size_t kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

Nvml functions_of(void* library) {
  Nvml nvml;
  find(library, "nvmlInit_v2", nvml.init);
  find(library, "nvmlShutdown", nvml.shutdown);
  find(library, "nvmlDeviceGetCount_v2", nvml.count);
  find(library, "nvmlDeviceGetHandleByIndex_v2", nvml.device);
  find(library, "nvmlDeviceGetUUID", nvml.uuid);
  return nvml;
}

std::vector<std::string> uuids_of(const Nvml& nvml) {
  unsigned count = 0;
  if (nvml.count(&count) != 0) return {};
  std::vector<std::string> uuids(count);
  for (unsigned index = 0; index < count; ++index) {
    Nvml::Device device = nullptr;
    std::array<char, kUuidBytes> text{};
    // A device that does not answer still has its ordinal.
    if (nvml.device(index, &device) == 0 && nvml.uuid(device, text.data(), kUuidBytes) == 0)
      uuids[index] = text.data();
  }
  return uuids;
}

}  // namespace

std::vector<std::string> nvml_uuids() {
  const std::unique_ptr<void, int (*)(void*)> library(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL),
                                                      ::dlclose);
  if (!library) return {};
  const auto nvml = functions_of(library.get());
  if (!nvml.is_complete() || nvml.init() != 0) return {};
  auto uuids = uuids_of(nvml);
  nvml.shutdown();
  return uuids;
}

}  // namespace lockstep::detail
