#include "device/nvidia_driver.h"

#include <string>

#include <dlfcn.h>

#include <lockstep/base/env.h>

namespace lockstep::detail {
namespace {

// cuda.h, whose functions return 0 when all went well.
struct NvidiaDriver {
  int (*init)(unsigned flags) = nullptr;
  int (*version)(int* version) = nullptr;
  int (*count)(int* devices) = nullptr;
  int (*error_text)(int error, const char** text) = nullptr;

  bool is_complete() const { return init && version && count && error_text; }
};

template <class Function>
void find_in(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

NvidiaDriver driver_in(void* library) {
  NvidiaDriver driver;
  find_in(library, "cuInit", driver.init);
  find_in(library, "cuDriverGetVersion", driver.version);
  find_in(library, "cuDeviceGetCount", driver.count);
  find_in(library, "cuGetErrorString", driver.error_text);
  return driver;
}

constexpr auto kDriverLibrary = "libcuda.so.1";
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::string cuda_text(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

ErrorParts fault_without_driver() {
  const char* const error = ::dlerror();
  return {.what = "there is no driver of NVIDIA",
          .expected = kDriverLibrary,
          .got = error != nullptr ? error : "a library without the driver's functions",
          .hint = "install NVIDIA's driver; a container must be started with NVIDIA's container toolkit"};
}

std::optional<ErrorParts> fault_of_version(const NvidiaDriver& driver, int needed) {
  int version = 0;
  if (driver.version(&version) != 0) version = 0;
  if (version / 1000 >= needed / 1000) return std::nullopt;
  return ErrorParts{.what = "NVIDIA's driver is too old for this LibTorch",
                    .expected = "a driver for " + cuda_text(needed / 1000 * 1000) + " or later",
                    .got = "one for " + cuda_text(version),
                    .hint = "update the driver, or use a LibTorch for " + cuda_text(version)};
}

ErrorParts fault_of_start(const NvidiaDriver& driver, int error) {
  const char* text = nullptr;
  if (driver.error_text(error, &text) != 0 || text == nullptr) text = "an unknown error";
  return {.what = "NVIDIA's driver does not start",
          .expected = "cuInit() to succeed",
          .got = std::string(text) + " (" + std::to_string(error) + ")",
          .hint = "nvidia-smi tells whether the driver runs, and dmesg why not"};
}

ErrorParts fault_without_devices() {
  const auto visible = env::get("CUDA_VISIBLE_DEVICES");
  return {
      .what = "NVIDIA's driver shows this process no device",
      .expected = "at least one",
      .got = visible ? "none, with CUDA_VISIBLE_DEVICES=\"" + *visible + '"' : "none",
      .hint = visible ? "CUDA_VISIBLE_DEVICES hides devices" : "nvidia-smi tells which devices there are"};
}

std::optional<ErrorParts> fault_of_devices(const NvidiaDriver& driver) {
  const int error = driver.init(0);
  if (error == kNoDevice) return fault_without_devices();
  if (error != 0) return fault_of_start(driver, error);
  int devices = 0;
  if (driver.count(&devices) == 0 && devices > 0) return std::nullopt;
  return fault_without_devices();
}

}  // namespace

std::optional<ErrorParts> fault_of_nvidia_driver(int needed, bool is_started) {
  void* const library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fault_without_driver();
  const auto driver = driver_in(library);
  if (!driver.is_complete()) return fault_without_driver();
  if (auto fault = fault_of_version(driver, needed)) return fault;
  return is_started ? fault_of_devices(driver) : std::nullopt;
}

}  // namespace lockstep::detail
