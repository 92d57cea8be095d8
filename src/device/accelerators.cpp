// The table of accelerators: CPUs, and NVIDIA's GPUs, by a LibTorch that was built for CUDA. To add one,
// write its class here, or in a file of its own, and add a row to table(), or register it.
#include <algorithm>
#include <filesystem>
#include <mutex>
#include <ranges>
#include <string>

#include <dlfcn.h>

#include <ATen/Context.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/device/devices.h>

#include "device/step_recording.h"

namespace lockstep {

// A stream that may go on need not be waited for: nobody will read what it brings.
void StreamGate::await_arrival() {
  std::unique_lock lock(mutex_);
  const auto turn = ++awaited_;
  changed_.wait(lock, [&] { return arrived_ >= turn || opened_ >= turn; });
}

void StreamGate::open() {
  {
    const std::lock_guard lock(mutex_);
    ++opened_;
  }
  changed_.notify_all();
}

void StreamGate::pass() {
  std::unique_lock lock(mutex_);
  const auto turn = ++arrived_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return opened_ >= turn; });
}

}  // namespace lockstep

namespace lockstep::detail {
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
    return "NVIDIA's management library shows no device to this process; nvidia-smi tells whether there is a "
           "driver, and CUDA_VISIBLE_DEVICES may hide devices";
  }

  // LibTorch looks for CUDA once in the life of a process, when somebody first asks for it: a library that
  // comes later is not found.
  void load() const override {
    static std::once_flag once;
    std::call_once(once, [] {
      const auto library = cuda_library();
      const bool was_loaded = is_loaded(library);
      if (!was_loaded && ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        const char* const error = ::dlerror();
        throw ConfigError("device", {.what = "LibTorch's library for CUDA cannot be loaded",
                                     .expected = library.string(),
                                     .got = error != nullptr ? error : "an unknown error",
                                     .hint = "look whether the libraries that it needs are installed"});
      }
      if (at::globalContext().hasCUDA()) return;
      throw ConfigError(
          "device",
          {.what = "LibTorch does not find its CUDA",
           .expected = "a driver, and nobody who asked LibTorch for CUDA before it was loaded",
           .got = was_loaded ? "no driver that it can use" : "CUDA was asked for before, or no driver",
           .hint = "create the Trainer or Fabric before torch::manual_seed() and the first backward, "
                   "or link the program with libtorch_cuda"});
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

// The program need not link LibTorch's CUDA library: load() does, from the folder where LibTorch lies.
std::shared_ptr<const Accelerator> make_cuda_accelerator() {
  return std::make_shared<const CudaAccelerator>();
}

}  // namespace

}  // namespace lockstep::detail

namespace lockstep {

Accelerator::~Accelerator() = default;

namespace {

class CpuAccelerator final : public Accelerator {
 public:
  std::string_view name() const override { return "cpu"; }
  c10::DeviceType type() const override { return c10::DeviceType::CPU; }
  int count() const override { return 1; }
};

struct Table {
  std::mutex mutex = {};
  std::vector<std::shared_ptr<const Accelerator>> rows;  // the best one last

  std::vector<std::shared_ptr<const Accelerator>> copy() {
    const std::lock_guard lock(mutex);
    return rows;
  }
  // None is ever taken out.
  template <class Predicate>
  const Accelerator* find(const Predicate& is_wanted) {
    const std::lock_guard lock(mutex);
    const auto found = std::ranges::find_if(rows, [&](const auto& row) { return is_wanted(*row); });
    return found == rows.end() ? nullptr : found->get();
  }
};

// Never destroyed: rows are found until the process ends.
Table& table() {
  static auto* const made =
      new Table{.rows = {std::make_shared<const CpuAccelerator>(), detail::make_cuda_accelerator()}};
  return *made;
}

bool is_called(const Accelerator& accelerator, std::string_view name) {
  const auto aliases = accelerator.aliases();
  return accelerator.name() == name || std::ranges::find(aliases, name) != aliases.end();
}

}  // namespace

void register_accelerator(std::shared_ptr<const Accelerator> accelerator) {
  auto names = accelerator->aliases();
  names.push_back(accelerator->name());
  for (const auto name : names) {
    if (name != "auto" && find_accelerator(name) == nullptr) continue;
    throw ConfigError("device", {.what = "an accelerator is registered under a name that is taken",
                                 .expected = "another name than auto, " + accelerator_names(),
                                 .got = std::string(name)});
  }
  const std::lock_guard lock(table().mutex);
  table().rows.push_back(std::move(accelerator));
}

const Accelerator* find_accelerator(std::string_view name) {
  return table().find([&](const Accelerator& row) { return is_called(row, name); });
}

const Accelerator* find_accelerator(c10::DeviceType type) {
  return table().find([&](const Accelerator& row) { return row.type() == type; });
}

const Accelerator& best_accelerator() {
  const auto rows = table().copy();
  for (const auto& row : rows | std::views::reverse) {
    if (row->is_automatic() && row->count() > 0) return *row;
  }
  return *rows.front();
}

std::string accelerator_names() {
  std::string names;
  for (const auto& row : table().copy()) names += (names.empty() ? "" : ", ") + std::string(row->name());
  return names;
}

}  // namespace lockstep
