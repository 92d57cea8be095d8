// NVIDIA's driver as a test wants it: FAKE_DRIVER is the version of CUDA that it is for, FAKE_START what
// cuInit() returns, FAKE_DEVICES how many devices there are.
#include <cstdlib>

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

namespace {
int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}
}  // namespace

FAKE_CUDA_API int cuInit(unsigned /*flags*/) { return number("FAKE_START", 0); }
FAKE_CUDA_API int cuDriverGetVersion(int* version) {
  *version = number("FAKE_DRIVER", 13000);
  return 0;
}
FAKE_CUDA_API int cuDeviceGetCount(int* devices) {
  *devices = number("FAKE_DEVICES", 2);
  return 0;
}
FAKE_CUDA_API int cuGetErrorString(int error, const char** text) {
  *text = error == 803 ? "system has unsupported display driver / cuda driver combination" : "another error";
  return 0;
}
