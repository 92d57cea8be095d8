#include "device/nvidia_driver.h"

#include <string>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include <lockstep/base/env.h>

#include "base/library_symbol.h"

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

NvidiaDriver driver_in(void* library) {
  NvidiaDriver driver;
  find_symbol(library, "cuInit", driver.init);
  find_symbol(library, "cuDriverGetVersion", driver.version);
  find_symbol(library, "cuDeviceGetCount", driver.count);
  find_symbol(library, "cuGetErrorString", driver.error_text);
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

namespace {

// What takes memory of a device, by cuda.h.
struct NvidiaMemory {
  int (*init)(unsigned flags) = nullptr;
  int (*count)(int* devices) = nullptr;
  int (*device)(int* device, int index) = nullptr;
  int (*retain)(void** context, int device) = nullptr;
  int (*release)(int device) = nullptr;
  int (*push)(void* context) = nullptr;
  int (*pop)(void** context) = nullptr;
  int (*allocate)(unsigned long long* memory, std::size_t bytes) = nullptr;
  int (*free)(unsigned long long memory) = nullptr;

  bool is_complete() const {
    return init && count && device && retain && release && push && pop && allocate && free;
  }
};

NvidiaMemory memory_functions_in(void* library) {
  NvidiaMemory driver;
  find_symbol(library, "cuInit", driver.init);
  find_symbol(library, "cuDeviceGetCount", driver.count);
  find_symbol(library, "cuDeviceGet", driver.device);
  find_symbol(library, "cuDevicePrimaryCtxRetain", driver.retain);
  find_symbol(library, "cuDevicePrimaryCtxRelease_v2", driver.release);
  find_symbol(library, "cuCtxPushCurrent_v2", driver.push);
  find_symbol(library, "cuCtxPopCurrent_v2", driver.pop);
  find_symbol(library, "cuMemAlloc_v2", driver.allocate);
  find_symbol(library, "cuMemFree_v2", driver.free);
  return driver;
}

// With a context of the device, which one in exclusive mode does not give while another process has one.
bool gives_memory(const NvidiaMemory& driver, int index) {
  int device = 0;
  void* context = nullptr;
  if (driver.device(&device, index) != 0 || driver.retain(&context, device) != 0) return false;
  bool is_given = false;
  if (driver.push(context) == 0) {
    unsigned long long memory = 0;
    is_given = driver.allocate(&memory, 512) == 0 && driver.free(memory) == 0;
    driver.pop(&context);
  }
  driver.release(device);
  return is_given;
}

// The driver counts no devices before it is started.
bool is_driver_started() {
  void* const library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const auto driver = memory_functions_in(library);
  int devices = 0;
  const bool is_started = driver.is_complete() && driver.count(&devices) == 0;
  ::dlclose(library);
  return is_started;
}

bool try_device(int index) {
  void* const library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  const auto driver = memory_functions_in(library);
  return driver.is_complete() && driver.init(0) == 0 && gives_memory(driver, index);
}

}  // namespace

bool has_usable_memory(const std::string& name, int index) {
  if (is_driver_started()) return try_device(index);
  const auto child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    env::set("CUDA_VISIBLE_DEVICES", name);
    ::_exit(try_device(0) ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace lockstep::detail
