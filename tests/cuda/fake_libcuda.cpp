// NVIDIA's driver as a test wants it: FAKE_DRIVER is the version of CUDA that it is for, FAKE_START what
// cuInit() returns, FAKE_DEVICES how many devices there are, FAKE_OCCUPIED the CUDA_VISIBLE_DEVICES with
// which the first of them is in exclusive mode and another process's.
#include <cstddef>
#include <cstdlib>
#include <cstring>

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

namespace {
int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}
bool is_started = false;
bool has_context = false;
}  // namespace

FAKE_CUDA_API int cuInit(unsigned /*flags*/) {
  const int error = number("FAKE_START", 0);
  is_started = error == 0;
  return error;
}
FAKE_CUDA_API int cuDriverGetVersion(int* version) {
  *version = number("FAKE_DRIVER", 13000);
  return 0;
}
FAKE_CUDA_API int cuDeviceGetCount(int* devices) {
  *devices = number("FAKE_DEVICES", 2);
  return is_started ? 0 : 3;  // CUDA_ERROR_NOT_INITIALIZED
}
FAKE_CUDA_API int cuGetErrorString(int error, const char** text) {
  if (error == 999) return 1;
  *text = error == 803 ? "system has unsupported display driver / cuda driver combination" : "another error";
  return 0;
}
FAKE_CUDA_API int cuDeviceGet(int* device, int index) {
  *device = index;
  return is_started ? 0 : 3;
}
FAKE_CUDA_API int cuDevicePrimaryCtxRetain(void** context, int /*device*/) {
  const char* const occupied = std::getenv("FAKE_OCCUPIED");
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (occupied != nullptr && visible != nullptr && std::strcmp(occupied, visible) == 0)
    return 46;  // CUDA_ERROR_DEVICE_UNAVAILABLE
  *context = &has_context;
  return 0;
}
FAKE_CUDA_API int cuDevicePrimaryCtxRelease_v2(int /*device*/) { return 0; }
FAKE_CUDA_API int cuCtxPushCurrent_v2(void* context) {
  has_context = context == &has_context;
  return 0;
}
FAKE_CUDA_API int cuCtxPopCurrent_v2(void** /*context*/) { return 0; }
FAKE_CUDA_API int cuMemAlloc_v2(unsigned long long* memory, std::size_t /*bytes*/) {
  *memory = 512;
  return has_context ? 0 : 201;  // CUDA_ERROR_INVALID_CONTEXT
}
FAKE_CUDA_API int cuMemFree_v2(unsigned long long /*memory*/) { return 0; }
