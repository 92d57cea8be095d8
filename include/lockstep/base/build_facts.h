// What this lockstep was built from and with.
#pragma once

#include <string>

#include <lockstep/base/export.h>

namespace lockstep {

/// The facts that CMake and the compiler know. Texts are for people; none is empty but where it says so.
struct BuildFacts {
  std::string version = {};        ///< of lockstep: "0.1.0"
  std::string torch_version = {};  ///< of the LibTorch whose headers were used: "2.13.0"
  std::string torch_folder = {};   ///< where that LibTorch was
  std::string abi = {};            ///< of the C++ standard library: "libstdc++ 12, _GLIBCXX_USE_CXX11_ABI=1"
  std::string compiler = {};       ///< "GCC 12.2.0"
  std::string build_type = {};     ///< "Release"; of a sanitizer's build also its name
  bool is_optimised = true;        ///< neither a build without optimisation nor one of a sanitizer
  std::string cuda = {};           ///< the CUDA of liblockstep_cuda.so: "13"; empty: that was not built
  std::string system = {};         ///< where it was built: "Debian GNU/Linux 12, x86_64"

  /// Of torch_version what must not differ where a program runs: "2.13".
  std::string torch_minor_version() const { return torch_version.substr(0, torch_version.rfind('.')); }
};

/// What this library was built with.
LOCKSTEP_API const BuildFacts& build_facts();

}  // namespace lockstep
