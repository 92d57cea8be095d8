// NVIDIA's GPUs, by a LibTorch that was built for CUDA.
#include <filesystem>
#include <mutex>
#include <string>

#include <dlfcn.h>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/device/devices.h>

#include "device/cuda_plugin.h"
#include "device/nvidia_driver.h"
#include "device/step_recording.h"

namespace lockstep::detail {

std::shared_ptr<const Accelerator> make_cuda_accelerator();

namespace {

// Beside the library of LibTorch that this process uses.
std::filesystem::path cuda_library() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) == 0 || info.dli_fname == nullptr)
    return "libtorch_cuda.so";
  return std::filesystem::path(info.dli_fname).parent_path() / "libtorch_cuda.so";
}

bool is_built() {
  std::error_code none;
  return std::filesystem::exists(cuda_library(), none);
}

bool is_loaded(const std::filesystem::path& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

// LibTorch looks for CUDA once in the life of a process, when somebody first asks for it: a library that
// comes later is not found. Returns whether it was there.
bool load_torch_cuda() {
  const auto library = cuda_library();
  if (is_loaded(library)) return true;
  if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return false;
  const char* const error = ::dlerror();
  throw ConfigError("device", {.what = "LibTorch's library for CUDA cannot be loaded",
                               .expected = library.string(),
                               .got = error != nullptr ? error : "an unknown error",
                               .hint = "look whether the libraries that it needs are installed"});
}

// Of a LibTorch that was asked too early nothing can be learned.
int cuda_of_torch() {
  try {
    return static_cast<int>(at::detail::getCUDAHooks().versionCUDART());
  } catch (const std::exception&) {
    return 0;
  }
}

[[noreturn]] void refuse_cuda(bool was_loaded) {
  if (const auto fault = fault_of_nvidia_driver(cuda_of_torch(), /*is_started=*/true))
    throw ConfigError("device", *fault);
  throw ConfigError(
      "device", {.what = "LibTorch does not find its CUDA",
                 .expected = "nobody who asked LibTorch for CUDA before it was loaded",
                 .got = was_loaded ? "no device that it can use" : "CUDA was asked for before",
                 .hint = "create the Trainer or Fabric before torch::manual_seed() and the first backward, "
                         "or link the program with libtorch_cuda"});
}

class CudaAccelerator final : public Accelerator {
 public:
  std::string_view name() const override { return "cuda"; }
  std::vector<std::string_view> aliases() const override { return {"gpu"}; }
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }

  // Asked for several times in a start; the driver's library need be asked once.
  int count() const override {
    static const int devices = is_built() ? this_machine().cuda_count() : 0;
    return devices;
  }

  std::string absence() const override {
    if (!is_built())
      return "this LibTorch was built without CUDA: " + cuda_library().string() +
             " is not there; use a LibTorch for CUDA";
    if (const auto fault = fault_of_nvidia_driver(/*needed=*/0, /*is_started=*/false))
      return fault->what + " (" + fault->got + "); " + fault->hint;
    return "NVIDIA's management library shows no device to this process; nvidia-smi tells whether there are "
           "any, and CUDA_VISIBLE_DEVICES may hide devices";
  }

  void load() const override {
    static std::once_flag once;
    std::call_once(once, [] {
      const bool was_loaded = load_torch_cuda();
      if (!at::globalContext().hasCUDA()) refuse_cuda(was_loaded);
      load_cuda_plugin();
    });
  }

  bool issue_gate(const c10::Stream& stream, std::shared_ptr<StreamGate> gate,
                  std::span<const at::Tensor> /*memory*/) const override {
    static const auto launch = launch_function();
    if (launch == nullptr) return false;
    // A recorded gate is passed in each replay, and lives as long as the recording.
    if (StepRecording::current() != nullptr)
      return launch(stream.native_handle(), &pass_recorded_gate, gate.get()) == 0;
    auto* const held = new std::shared_ptr<StreamGate>(std::move(gate));
    if (launch(stream.native_handle(), &pass_gate, held) == 0) return true;
    delete held;
    return false;
  }

 private:
  // cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void*): a thread of the driver calls the
  // function, which may not use CUDA.
  using LaunchHostFunction = int (*)(void* stream, void (*function)(void*), void* data);

  // Null where there is none, and unless gates are asked for.
  static LaunchHostFunction launch_function() {
    if (env::get("LOCKSTEP_CUDA_GATES") != "1") return nullptr;
    return reinterpret_cast<LaunchHostFunction>(::dlsym(RTLD_DEFAULT, "cudaLaunchHostFunc"));
  }

  static void pass_recorded_gate(void* gate) { static_cast<StreamGate*>(gate)->pass(); }

  static void pass_gate(void* held) {
    const std::unique_ptr<std::shared_ptr<StreamGate>> gate(static_cast<std::shared_ptr<StreamGate>*>(held));
    (*gate)->pass();
  }
};

}  // namespace

// The program need not link LibTorch's CUDA library: load() does, from the folder where LibTorch lies.
std::shared_ptr<const Accelerator> make_cuda_accelerator() {
  return std::make_shared<const CudaAccelerator>();
}

}  // namespace lockstep::detail
