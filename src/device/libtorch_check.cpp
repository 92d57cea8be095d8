// Ends a process that has loaded a LibTorch of another version than this library was compiled for.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

namespace lockstep::detail {
namespace {

constexpr int kRefused = 2;  // as of a setting that is wrong

std::uint64_t major_and_minor(std::uint64_t abi_version) { return abi_version >> 48; }

const char* file_of(const void* symbol) {
  Dl_info info{};
  return ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "an unknown file";
}

// Classes of another version have other members in other places, so nothing may be called that takes or makes
// one. The library is being loaded, where an exception would have no place to go.
[[gnu::constructor]] void check_libtorch_version() {
  const auto compiled_for = major_and_minor(TORCH_ABI_VERSION);
  const auto loaded = major_and_minor(aoti_torch_abi_version());
  if (compiled_for == loaded) return;
  const auto own_file = file_of(reinterpret_cast<const void*>(&check_libtorch_version));
  const auto torch_file = file_of(reinterpret_cast<const void*>(&aoti_torch_abi_version));
  std::fprintf(stderr,
               "lockstep: %s was built for another LibTorch; expected version %d.%d; got %d.%d of %s; "
               "install that version "
               "(pip install \"torch==%d.%d.*\"), or build lockstep with the one that is there\n",
               own_file, TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, static_cast<int>(loaded >> 8),
               static_cast<int>(loaded & 0xff), torch_file, TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
  ::_exit(kRefused);
}

}  // namespace
}  // namespace lockstep::detail
