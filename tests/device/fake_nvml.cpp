// NVIDIA's management library as a test wants it: two devices, of which the second does not tell its UUID.
#include <cstdio>

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
  if (device != reinterpret_cast<void*>(1UL)) return 1;
  std::snprintf(uuid, bytes, "GPU-fake");
  return 0;
}
FAKE_NVML_API int fake_nvml_users() { return users; }
