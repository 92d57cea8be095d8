#include <lockstep/base/build_facts.h>

#include <string_view>

#include <lockstep/base/version.h>

namespace lockstep {
namespace {

std::string compiler_text() {
#if defined(__clang__)
  return "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#else
  return "GCC " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#endif
}

std::string abi_text() {
#if defined(__GLIBCXX__)
  return "libstdc++ " + std::to_string(_GLIBCXX_RELEASE) +
         ", _GLIBCXX_USE_CXX11_ABI=" + std::to_string(_GLIBCXX_USE_CXX11_ABI);
#else
  return "not libstdc++";
#endif
}

std::string build_type_text() {
  const std::string type = LOCKSTEP_BUILD_TYPE, sanitizer = LOCKSTEP_BUILD_SANITIZER;
  return (type.empty() ? "no build type" : type) + (sanitizer.empty() ? "" : ", sanitizer " + sanitizer);
}

bool is_build_optimised() {
#if defined(__OPTIMIZE__)
  return std::string_view(LOCKSTEP_BUILD_SANITIZER).empty();
#else
  return false;
#endif
}

}  // namespace

const BuildFacts& build_facts() {
  static const BuildFacts facts{.version = kVersion,
                                .torch_version = LOCKSTEP_BUILD_TORCH_VERSION,
                                .torch_folder = LOCKSTEP_BUILD_TORCH_FOLDER,
                                .abi = abi_text(),
                                .compiler = compiler_text(),
                                .build_type = build_type_text(),
                                .is_optimised = is_build_optimised(),
                                .cuda = LOCKSTEP_BUILD_CUDA,
                                .system = LOCKSTEP_BUILD_SYSTEM};
  return facts;
}

}  // namespace lockstep
