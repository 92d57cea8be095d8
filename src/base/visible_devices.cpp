#include "base/visible_devices.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <set>

#include <lockstep/base/env.h>

#include "base/format.h"

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

namespace {

std::optional<int> by_ordinal(std::string_view entry, std::size_t count) {
  int ordinal = -1;
  const auto [end, status] = std::from_chars(entry.data(), entry.data() + entry.size(), ordinal);
  const bool is_ordinal = status == std::errc{} && end == entry.data() + entry.size();
  if (!is_ordinal || ordinal < 0 || static_cast<std::size_t>(ordinal) >= count) return std::nullopt;
  return ordinal;
}

std::optional<int> by_uuid(std::string_view entry, const std::vector<std::string>& uuids) {
  const auto matches = [&](const std::string& uuid) { return uuid.starts_with(entry); };
  if (!entry.starts_with("GPU-") || std::ranges::count_if(uuids, matches) != 1) return std::nullopt;
  return static_cast<int>(std::ranges::find_if(uuids, matches) - uuids.begin());
}

}  // namespace

int count_visible(const std::optional<std::string>& variable, const std::vector<std::string>& uuids) {
  if (!variable) return static_cast<int>(uuids.size());
  std::set<int> seen;
  for (std::string_view rest = *variable; !rest.empty();) {
    const auto comma = std::min(rest.find(','), rest.size());
    const auto entry = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const auto device = entry.starts_with("GPU-") ? by_uuid(entry, uuids) : by_ordinal(entry, uuids.size());
    if (!device) break;
    if (!seen.insert(*device).second) return 0;
  }
  return static_cast<int>(seen.size());
}

int count_visible() { return count_visible(env::get("CUDA_VISIBLE_DEVICES"), nvml_uuids()); }

}  // namespace lockstep::detail
