// NVIDIA's management library as a test wants it: two devices, of which the second does not tell its UUID.
// They have 16 and 24 GiB. With FAKE_MIG the first is divided: of three places for parts two, of 5 GiB, are
// taken.
#include <cstdio>
#include <cstdlib>

#define FAKE_NVML_API extern "C" __attribute__((visibility("default")))

namespace {
int users = 0;
}

FAKE_NVML_API int nvmlInit_v2() {
  ++users;
  return 0;
}
FAKE_NVML_API int nvmlShutdown() { return --users; }
FAKE_NVML_API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return users == 1 ? 0 : 1;
}
FAKE_NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
  return 0;
}
FAKE_NVML_API int nvmlDeviceGetUUID(void* device, char* uuid, unsigned bytes) {
  const auto part = reinterpret_cast<unsigned long>(device);
  if (part >= 100) {
    std::snprintf(uuid, bytes, "MIG-fake-%lu", part - 100);
    return 0;
  }
  if (device != reinterpret_cast<void*>(1UL)) return 1;
  std::snprintf(uuid, bytes, "GPU-fake");
  return 0;
}
FAKE_NVML_API int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  const auto number = reinterpret_cast<unsigned long>(device);
  *total_free_used = (number >= 100 ? 5ULL : number == 1 ? 16ULL : 24ULL) << 30;
  return 0;
}
FAKE_NVML_API int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* count) {
  if (device != reinterpret_cast<void*>(1UL)) return 3;  // not supported
  *count = std::getenv("FAKE_MIG") != nullptr ? 3 : 0;
  return 0;
}
FAKE_NVML_API int nvmlDeviceGetMigDeviceHandleByIndex(void* /*device*/, unsigned index, void** part) {
  if (index == 1) return 6;  // not found
  *part = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 100);
  return 0;
}
FAKE_NVML_API int fake_nvml_users() { return users; }
