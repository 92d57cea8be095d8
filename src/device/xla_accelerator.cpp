// Devices of XLA, by the PJRT plug-in that options or the environment name: TPUs, GPUs or CPUs. What of it
// needs PJRT's header is liblockstep_xla.so.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include <dlfcn.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>

#include "device/optional_library.h"
#include "device/step_recording.h"
#include "device/xla_library_interface.h"

namespace lockstep::detail {

std::shared_ptr<const Accelerator> make_xla_accelerator();

namespace {

constexpr auto kHowToBuildXla = "`make xla` builds it for the LibTorch that lockstep is built with";

// What was configured, and the library once it is loaded.
struct XlaState {
  std::mutex mutex = {};
  XlaSettings settings = {};
  const XlaLibrary* library = nullptr;
};

XlaState& xla_state() {
  static auto* const made = new XlaState;
  return *made;
}

XlaSettings xla_settings() {
  const std::lock_guard lock(xla_state().mutex);
  return xla_state().settings;
}

bool is_set(const char* variable) {
  const auto value = env::get(variable);
  return value && !value->empty();
}

bool is_plugin_named() {
  return !xla_settings().plugin.empty() || is_set("LOCKSTEP_PJRT_PLUGIN") || is_set("PJRT_DEVICE");
}

std::string built_with(const std::string& lockstep, int torch_major, int torch_minor) {
  return "lockstep " + lockstep + " and LibTorch " + std::to_string(torch_major) + "." +
         std::to_string(torch_minor);
}

[[noreturn]] void refuse_xla_library(const std::filesystem::path& file, const std::string& what,
                                     const std::string& expected, const std::string& got) {
  throw ConfigError(
      "device",
      {.what = what, .expected = expected, .got = got, .where = file.string(), .hint = kHowToBuildXla});
}

const XlaLibrary& open_xla_library() {
  const auto file = optional_library_file("LOCKSTEP_XLA_LIBRARY", "liblockstep_xla.so");
  const XlaLibrary here;
  const auto expected = built_with(here.lockstep, here.torch_major, here.torch_minor);
  std::error_code none;
  if (!std::filesystem::exists(file, none))
    refuse_xla_library(file, "lockstep's library for XLA is not there", "liblockstep_xla.so", "no such file");
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = ::dlerror();
    refuse_xla_library(file, "lockstep's library for XLA cannot be loaded", "one for " + expected,
                       error != nullptr ? error : "an unknown error");
  }
  const auto get = reinterpret_cast<XlaLibraryFunction>(::dlsym(library, kXlaLibrarySymbol));
  if (get == nullptr)
    refuse_xla_library(file, "this is not lockstep's library for XLA", "liblockstep_xla.so",
                       "another library");
  const auto& table = *get();
  const auto got = built_with(table.lockstep, table.torch_major, table.torch_minor);
  if (got != expected)
    refuse_xla_library(file, "lockstep's library for XLA was built for other versions", expected, got);
  return table;
}

// How many devices a plug-in has is known when it is loaded, which must not be before there are ranks.
class XlaAccelerator final : public Accelerator {
 public:
  std::string_view name() const override { return "xla"; }
  std::vector<std::string_view> aliases() const override { return {"tpu"}; }
  c10::DeviceType type() const override { return c10::DeviceType::XLA; }

  int count() const override {
    return is_plugin_named() ? static_cast<int>(env::get_int("LOCKSTEP_PJRT_DEVICES", 1)) : 0;
  }

  int count_for(int asked) const override {
    if (count() == 0 || is_set("LOCKSTEP_PJRT_DEVICES")) return count();
    asked_ = std::max(asked_.load(), asked);
    return std::max(count(), asked);
  }

  std::string absence() const override {
    return "no PJRT plug-in is named: by strategy.pjrt_plugin, LOCKSTEP_PJRT_PLUGIN or PJRT_DEVICE; "
           "docs/xla.md of the sources says where they are found, and their tools/xla.sh fetches one for "
           "CPUs";
  }

  // Plug-ins are asked for by name: some look for their hardware on the network.
  bool is_automatic() const override { return false; }

  void load() const override {
    const std::lock_guard lock(xla_state().mutex);
    auto& library = xla_state().library;
    if (library == nullptr) library = &open_xla_library();
    const int declared = static_cast<int>(env::get_int("LOCKSTEP_PJRT_DEVICES", 1));
    library->load(xla_state().settings, {.declared = declared, .asked = asked_});
  }

 private:
  mutable std::atomic<int> asked_ = 1;  // the most that a run of this process has asked for
};

}  // namespace

void configure_xla(const XlaSettings& settings) {
  const std::lock_guard lock(xla_state().mutex);
  const auto take = [](std::string& known, const std::string& value) {
    if (!value.empty()) known = value;
  };
  take(xla_state().settings.plugin, settings.plugin);
  take(xla_state().settings.fallback, settings.fallback);
  take(xla_state().settings.cache, settings.cache);
  if (settings.partitions > 0) xla_state().settings.partitions = settings.partitions;
}

at::Tensor xla_copy_of_batch(const at::Tensor& tensor, at::Device device) {
  refuse_in_recording("a copy from the CPU");
  return xla_library().copy_batch(tensor, device);
}

std::map<std::string, double> xla_figures() {
  const std::lock_guard lock(xla_state().mutex);
  const auto* const library = xla_state().library;
  return library != nullptr ? library->figures() : std::map<std::string, double>{};
}

const XlaLibrary& xla_library() {
  const std::lock_guard lock(xla_state().mutex);
  if (xla_state().library != nullptr) return *xla_state().library;
  throw Error("device", {.what = "XLA is used before its devices are loaded"});
}

std::shared_ptr<const Accelerator> make_xla_accelerator() { return std::make_shared<const XlaAccelerator>(); }

}  // namespace lockstep::detail
