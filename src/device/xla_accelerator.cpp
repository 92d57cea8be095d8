// Devices of XLA, by the PJRT plug-in that LOCKSTEP_PJRT_PLUGIN names: TPUs, GPUs or CPUs. What of it needs
// PJRT's header is liblockstep_xla.so.
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include <dlfcn.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>

#include "device/optional_library.h"
#include "device/xla_library_interface.h"

namespace lockstep::detail {

std::shared_ptr<const Accelerator> make_xla_accelerator();

namespace {

constexpr auto kHowToBuildXla = "`make xla` builds it for the LibTorch that lockstep is built with";

bool is_plugin_named() {
  const auto named = env::get("LOCKSTEP_PJRT_PLUGIN");
  return named && !named->empty();
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

  std::string absence() const override {
    return "LOCKSTEP_PJRT_PLUGIN names no PJRT plug-in; docs/xla.md says where they are found, and "
           "tools/xla.sh "
           "fetches one for CPUs";
  }

  // Plug-ins are asked for by name: some look for their hardware on the network.
  bool is_automatic() const override { return false; }

  void load() const override {
    static std::once_flag once;
    std::call_once(once, [this] { open_xla_library().load(count()); });
  }
};

}  // namespace

std::shared_ptr<const Accelerator> make_xla_accelerator() { return std::make_shared<const XlaAccelerator>(); }

}  // namespace lockstep::detail
