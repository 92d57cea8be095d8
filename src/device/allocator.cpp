#include <lockstep/device/allocator.h>

#include <string>
#include <utility>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <lockstep/base/env.h>
#include <lockstep/base/log.h>

#include "device/cuda_plugin.h"

namespace lockstep {

DeviceCapacity capacity_of(c10::Device device) {
  if (device.is_cpu()) return {};
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr) return {};
  try {
    const auto [free, total] = allocator->getMemoryInfo(device.index());
    return {.free = static_cast<std::int64_t>(free), .total = static_cast<std::int64_t>(total)};
  } catch (const c10::NotImplementedError&) {
    return {};
  }
}

}  // namespace lockstep

namespace lockstep::detail {
namespace {

// The variable that LibTorch reads, and what it says.
std::pair<const char*, std::string> allocator_settings() {
  constexpr auto kName = "PYTORCH_ALLOC_CONF", kFormerName = "PYTORCH_CUDA_ALLOC_CONF";
  if (const auto set = env::get(kName)) return {kName, *set};
  if (const auto set = env::get(kFormerName)) return {kFormerName, *set};
  return {kName, ""};
}

}  // namespace

void ask_for_expandable_segments() {
  const auto [name, settings] = allocator_settings();
  if (settings.find("expandable_segments") != std::string::npos) return;
  if (is_torch_cuda_loaded()) {
    log_warning(
        "expandable_segments = true has no effect: LibTorch's library for CUDA is loaded already, and its "
        "allocator was told otherwise");
    return;
  }
  env::set(name, settings + (settings.empty() ? "" : ",") + "expandable_segments:True");
}

}  // namespace lockstep::detail
