// Finds and loads liblockstep_cuda.so, which holds what of lockstep was compiled with CUDA's headers.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/ATen_fwd.h>
#include <c10/core/ScalarType.h>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

#include "device/cuda_plugin_interface.h"

namespace lockstep::detail {

/// Versions of what the library and this process were built with. Empty where unknown.
struct CudaVersions {
  std::string torch = {};        ///< "2.13"
  std::string cuda = {};         ///< "13"
  std::string nccl_header = {};  ///< "2.29.7"; of this process: LibTorch's
  std::string nccl = {};         ///< of this process: the library that is loaded

  bool operator==(const CudaVersions&) const = default;
};

/// What the text says that begins with LOCKSTEP_CUDA_BUILD_MARK somewhere in `bytes`; nothing without one.
LOCKSTEP_API std::optional<CudaVersions> versions_in(std::string_view bytes);

/// What is wrong with a library that was built with `built` in a process of `here`; nothing where it fits.
LOCKSTEP_API std::optional<ErrorParts> fault_between(const CudaVersions& built, const CudaVersions& here);

/// Where the library is looked for: LOCKSTEP_CUDA_LIBRARY names it, else it lies beside liblockstep.so.
LOCKSTEP_API std::filesystem::path cuda_plugin_file();

/// Whether this process has loaded LibTorch's library for CUDA. Loads nothing.
LOCKSTEP_API bool is_torch_cuda_loaded();

/// Of the LibTorch that this process has loaded: "2.13"; that of its headers is another matter.
LOCKSTEP_API std::string torch_version();

/// Of this process, in which LibTorch's library for CUDA is loaded.
CudaVersions versions_here();

/// The library's table, which stays until the process ends; null where there is no library. Behind
/// Accelerator::load() of CUDA. Thread-safe. @throws ConfigError for a library that does not fit
LOCKSTEP_API const CudaPlugin* load_cuda_plugin();

/// The kernels of the library, where there are some and LOCKSTEP_CUDA_KERNELS=1 asks for them; else all null.
/// In a process that uses CUDA.
LOCKSTEP_API const CudaKernels& own_cuda_kernels();

/// What kernels call an element type; none for those that they do not know.
std::optional<CudaType> cuda_type(at::ScalarType dtype);

/// @throws Error naming `kernel`, where it was not launched
void check_cuda_launch(int error, const char* kernel);

}  // namespace lockstep::detail
