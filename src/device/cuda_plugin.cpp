#include "device/cuda_plugin.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <mutex>

#include <dlfcn.h>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <lockstep/base/env.h>

#include "base/read_file.h"
#include "device/optional_library.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kMark = LOCKSTEP_CUDA_BUILD_MARK;
constexpr auto kHowToBuild = "`make cuda` builds it for the LibTorch that lockstep is built with";

// What stands behind "NAME=", up to the next blank.
std::string value_of(std::string_view text, std::string_view name) {
  const auto at = text.find(name);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + name.size());
  return std::string(text.substr(0, text.find(' ')));
}

// 2, 29, 7 of "2.29.7"; what is missing is 0.
std::array<int, 3> numbers_of(std::string_view version) {
  std::array<int, 3> numbers{};
  for (auto& number : numbers) {
    const auto [end, status] = std::from_chars(version.data(), version.data() + version.size(), number);
    version.remove_prefix(static_cast<std::size_t>(end - version.data()));
    if (version.starts_with('.')) version.remove_prefix(1);
  }
  return numbers;
}

ErrorParts misfit(const std::string& what, const std::string& built, const std::string& here) {
  return {
      .what = "liblockstep_cuda.so was built for another " + what,
      .expected = built.empty() ? "none" : built,
      .got = here.empty() ? "none" : here,
      .hint = std::string(kHowToBuild) + "; without the library collectives go through the host's memory"};
}

template <class Function>
Function find_function(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

std::string joined(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

// torch::cuda::nccl::version(), which is that of the header that LibTorch was built with.
constexpr auto kNcclHeaderVersion = "_ZN5torch4cuda4nccl7versionEv";

std::string nccl_header_version() {
  const auto version = find_function<std::uint64_t (*)()>(kNcclHeaderVersion);
  if (version == nullptr) return {};
  const auto number = version();
  return joined(static_cast<int>(number >> 32), static_cast<int>(number >> 16 & 0xffff),
                static_cast<int>(number & 0xffff));
}

std::string nccl_version() {
  const auto get_version = find_function<int (*)(int*)>("ncclGetVersion");
  int number = 0;
  if (get_version == nullptr || get_version(&number) != 0) return {};
  return joined(number / 10000, number / 100 % 100, number % 100);
}

[[noreturn]] void refuse_plugin(const std::filesystem::path& file, ErrorParts parts) {
  parts.where = file.string();
  throw ConfigError("device", parts);
}

const CudaPlugin* open_plugin(const std::filesystem::path& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto table = library == nullptr
                         ? nullptr
                         : reinterpret_cast<CudaPluginFunction>(::dlsym(library, kCudaPluginSymbol));
  if (table != nullptr) return table();
  const char* const error = ::dlerror();
  refuse_plugin(file, {.what = "liblockstep_cuda.so cannot be loaded",
                       .expected = "a library that fits this LibTorch",
                       .got = error != nullptr ? error : "an unknown error",
                       .hint = kHowToBuild});
}

const CudaPlugin* find_plugin() {
  const auto file = cuda_plugin_file();
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return nullptr;
  const auto built = versions_in(read_file(file).value_or(""));
  if (!built)
    refuse_plugin(file, {.what = "this is not lockstep's library for CUDA",
                         .expected = "liblockstep_cuda.so",
                         .got = "a file that does not say what it was built with",
                         .hint = kHowToBuild});
  if (auto fault = fault_between(*built, versions_here())) refuse_plugin(file, std::move(*fault));
  return open_plugin(file);
}

}  // namespace

std::optional<CudaVersions> versions_in(std::string_view bytes) {
  for (auto at = bytes.find(kMark); at != std::string_view::npos; at = bytes.find(kMark, at + 1)) {
    const auto text = bytes.substr(at + kMark.size(), 100);
    const auto end = text.find(';');
    if (end == std::string_view::npos) continue;
    const auto line = text.substr(0, end);
    CudaVersions versions{.torch = value_of(line, "torch="),
                          .cuda = value_of(line, "cuda="),
                          .nccl_header = value_of(line, "nccl=")};
    if (!versions.torch.empty()) return versions;
  }
  return std::nullopt;
}

// LibTorch's classes change with its minor versions, and hold structures of NCCL, which grow with NCCL's.
std::optional<ErrorParts> fault_between(const CudaVersions& built, const CudaVersions& here) {
  if (built.torch != here.torch)
    return misfit("LibTorch", "LibTorch " + built.torch, "LibTorch " + here.torch);
  if (built.cuda != here.cuda) return misfit("CUDA", "CUDA " + built.cuda, "CUDA " + here.cuda);
  if (built.nccl_header != here.nccl_header)
    return misfit("NCCL", "a LibTorch that was built with NCCL " + built.nccl_header,
                  here.nccl_header.empty() ? "a LibTorch without NCCL" : "one of NCCL " + here.nccl_header);
  const auto header = numbers_of(built.nccl_header), library = numbers_of(here.nccl);
  if (header[0] != library[0] || library < header)
    return ErrorParts{
        .what = "NCCL's library is older than its header",
        .expected = "NCCL " + built.nccl_header + " or a later one of version " + std::to_string(header[0]),
        .got = here.nccl.empty() ? "no NCCL" : "NCCL " + here.nccl,
        .hint =
            "install the NCCL that this LibTorch asks for, and look at LD_LIBRARY_PATH and "
            "LD_PRELOAD"};
  return std::nullopt;
}

std::filesystem::path cuda_plugin_file() {
  return optional_library_file("LOCKSTEP_CUDA_LIBRARY", "liblockstep_cuda.so");
}

bool is_torch_cuda_loaded() { return ::dlsym(RTLD_DEFAULT, kNcclHeaderVersion) != nullptr; }

std::string torch_version() {
  const auto version = find_function<std::uint64_t (*)()>("aoti_torch_abi_version");
  if (version == nullptr) return {};
  const auto number = version();
  return std::to_string(number >> 56) + "." + std::to_string(number >> 48 & 0xff);
}

CudaVersions versions_here() {
  return {.torch = torch_version(),
          .cuda = std::to_string(at::detail::getCUDAHooks().versionCUDART() / 1000),
          .nccl_header = nccl_header_version(),
          .nccl = nccl_version()};
}

const CudaPlugin* load_cuda_plugin() {
  static std::mutex mutex;
  static std::optional<const CudaPlugin*> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) loaded = find_plugin();
  return *loaded;
}

const CudaKernels& own_cuda_kernels() {
  static const auto kernels = [] {
    const auto* const plugin = env::get("LOCKSTEP_CUDA_KERNELS") == "1" ? load_cuda_plugin() : nullptr;
    return plugin != nullptr ? plugin->kernels : CudaKernels{};
  }();
  return kernels;
}

std::optional<CudaType> cuda_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return CudaType::kFloat32;
    case at::kDouble:
      return CudaType::kFloat64;
    case at::kBFloat16:
      return CudaType::kBFloat16;
    case at::kHalf:
      return CudaType::kFloat16;
    default:
      return std::nullopt;
  }
}

void check_cuda_launch(int error, const char* kernel) {
  if (error == 0) return;
  throw Error("device", {.what = std::string("the CUDA kernel ") + kernel + " was not launched",
                         .got = "error " + std::to_string(error) + " of CUDA's runtime"});
}

}  // namespace lockstep::detail
