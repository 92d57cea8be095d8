#include "base/visible_devices.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include <lockstep/base/env.h>

#include "base/format.h"
#include "base/library_symbol.h"

namespace lockstep::detail {
namespace {

// nvml.h, whose functions return 0 when all went well.
struct Nvml {
  using Device = void*;
  struct Memory {
    unsigned long long total, free, used;
  };

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  // Absent from old drivers, which know no MIG.
  int (*most_parts)(Device, unsigned*) = nullptr;
  int (*part)(Device, unsigned, Device*) = nullptr;

  bool is_complete() const { return init && shutdown && count && device && uuid; }
};

constexpr std::size_t kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

Nvml functions_of(void* library) {
  Nvml nvml;
  find_symbol(library, "nvmlInit_v2", nvml.init);
  find_symbol(library, "nvmlShutdown", nvml.shutdown);
  find_symbol(library, "nvmlDeviceGetCount_v2", nvml.count);
  find_symbol(library, "nvmlDeviceGetHandleByIndex_v2", nvml.device);
  find_symbol(library, "nvmlDeviceGetUUID", nvml.uuid);
  find_symbol(library, "nvmlDeviceGetMemoryInfo", nvml.memory);
  find_symbol(library, "nvmlDeviceGetMaxMigDeviceCount", nvml.most_parts);
  find_symbol(library, "nvmlDeviceGetMigDeviceHandleByIndex", nvml.part);
  return nvml;
}

// Empty where the device does not answer.
std::string uuid_of(const Nvml& nvml, Nvml::Device device) {
  std::array<char, kUuidBytes> text{};
  return nvml.uuid(device, text.data(), kUuidBytes) == 0 ? text.data() : "";
}

// 0 where it is not told.
std::int64_t memory_of(const Nvml& nvml, Nvml::Device device) {
  Nvml::Memory memory{};
  if (nvml.memory == nullptr || nvml.memory(device, &memory) != 0) return 0;
  return static_cast<std::int64_t>(memory.total);
}

// Places of parts that were not made are empty.
void add_parts(const Nvml& nvml, Nvml::Device device, NvidiaDevice& whole) {
  unsigned most = 0;
  if (nvml.most_parts == nullptr || nvml.part == nullptr || nvml.most_parts(device, &most) != 0) return;
  for (unsigned index = 0; index < most; ++index) {
    Nvml::Device part = nullptr;
    if (nvml.part(device, index, &part) != 0) continue;
    auto uuid = uuid_of(nvml, part);
    if (uuid.empty()) continue;
    const auto bytes = memory_of(nvml, part);
    whole.memory_bytes = whole.parts.empty() ? bytes : std::min(whole.memory_bytes, bytes);
    whole.parts.push_back(std::move(uuid));
  }
}

std::vector<NvidiaDevice> devices_of(const Nvml& nvml) {
  unsigned count = 0;
  if (nvml.count(&count) != 0) return {};
  std::vector<NvidiaDevice> devices(count);
  for (unsigned index = 0; index < count; ++index) {
    Nvml::Device device = nullptr;
    // A device that does not answer still has its ordinal.
    if (nvml.device(index, &device) != 0) continue;
    devices[index] = {.uuid = uuid_of(nvml, device), .memory_bytes = memory_of(nvml, device)};
    add_parts(nvml, device, devices[index]);
  }
  return devices;
}

}  // namespace

std::vector<NvidiaDevice> nvml_devices() {
  const std::unique_ptr<void, int (*)(void*)> library(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL),
                                                      ::dlclose);
  if (!library) return {};
  const auto nvml = functions_of(library.get());
  if (!nvml.is_complete() || nvml.init() != 0) return {};
  auto devices = devices_of(nvml);
  nvml.shutdown();
  return devices;
}

namespace {

std::optional<std::size_t> by_ordinal(std::string_view entry, std::size_t count) {
  std::size_t ordinal = 0;
  const auto [end, status] = std::from_chars(entry.data(), entry.data() + entry.size(), ordinal);
  const bool is_ordinal = status == std::errc{} && end == entry.data() + entry.size();
  if (!is_ordinal || ordinal >= count) return std::nullopt;
  return ordinal;
}

// The one whose UUID begins so.
std::optional<std::size_t> by_uuid(std::string_view entry, const std::vector<std::string>& uuids) {
  const auto matches = [&](const std::string& uuid) { return uuid.starts_with(entry); };
  if (std::ranges::count_if(uuids, matches) != 1) return std::nullopt;
  return static_cast<std::size_t>(std::ranges::find_if(uuids, matches) - uuids.begin());
}

// How CUDA_VISIBLE_DEVICES names a device: by its parts where it has some.
std::vector<std::string> names_of(const std::vector<NvidiaDevice>& devices, std::size_t index) {
  const auto& device = devices[index];
  if (!device.parts.empty()) return device.parts;
  return {device.uuid.empty() ? std::to_string(index) : device.uuid};
}

std::vector<std::string> all_parts(const std::vector<NvidiaDevice>& devices) {
  std::vector<std::string> parts;
  for (const auto& device : devices) parts.insert(parts.end(), device.parts.begin(), device.parts.end());
  return parts;
}

// What an entry stands for; nothing for one that names no device.
std::vector<std::string> named_by(std::string_view entry, const std::vector<NvidiaDevice>& devices) {
  if (entry.starts_with("MIG-")) {
    const auto parts = all_parts(devices);
    const auto part = by_uuid(entry, parts);
    return part ? std::vector{parts[*part]} : std::vector<std::string>{};
  }
  std::vector<std::string> uuids;
  for (const auto& device : devices) uuids.push_back(device.uuid);
  const auto index = entry.starts_with("GPU-") ? by_uuid(entry, uuids) : by_ordinal(entry, devices.size());
  return index ? names_of(devices, *index) : std::vector<std::string>{};
}

std::vector<std::string> all_names(const std::vector<NvidiaDevice>& devices) {
  std::vector<std::string> names;
  for (std::size_t index = 0; index < devices.size(); ++index) {
    for (auto& name : names_of(devices, index)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::vector<std::string> visible_nvidia_devices(const std::optional<std::string>& variable,
                                                const std::vector<NvidiaDevice>& devices) {
  if (!variable) return all_names(devices);
  std::vector<std::string> visible;
  for (std::string_view rest = *variable; !rest.empty();) {
    const auto comma = std::min(rest.find(','), rest.size());
    const auto entry = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const auto named = named_by(entry, devices);
    if (named.empty()) break;
    for (const auto& name : named) {
      if (std::ranges::find(visible, name) != visible.end()) return {};
      visible.push_back(name);
    }
  }
  return visible;
}

std::vector<std::string> visible_nvidia_devices() {
  return visible_nvidia_devices(env::get("CUDA_VISIBLE_DEVICES"), nvml_devices());
}

std::optional<std::int64_t> least_nvidia_memory(const std::vector<std::string>& visible,
                                                const std::vector<NvidiaDevice>& devices) {
  std::optional<std::int64_t> least;
  for (std::size_t index = 0; index < devices.size(); ++index) {
    const auto names = names_of(devices, index);
    const auto bytes = devices[index].memory_bytes;
    const bool is_visible = std::ranges::find_first_of(visible, names) != visible.end();
    if (is_visible && bytes > 0) least = std::min(bytes, least.value_or(bytes));
  }
  return least;
}

std::optional<std::int64_t> least_nvidia_memory() {
  const auto devices = nvml_devices();
  return least_nvidia_memory(visible_nvidia_devices(env::get("CUDA_VISIBLE_DEVICES"), devices), devices);
}

}  // namespace lockstep::detail
