// Where the libraries are looked for that not everybody has: liblockstep_cuda.so and liblockstep_xla.so.
#pragma once

#include <filesystem>

#include <dlfcn.h>

#include <lockstep/base/env.h>

namespace lockstep::detail {

/// The file that `variable` names, else `name` beside liblockstep.so. Not to be called from other libraries.
inline std::filesystem::path optional_library_file(const char* variable, const char* name) {
  if (const auto named = env::get(variable)) return *named;
  Dl_info info{};
  const auto* const here = reinterpret_cast<const void*>(&optional_library_file);
  if (::dladdr(here, &info) == 0 || info.dli_fname == nullptr) return name;
  return std::filesystem::path(info.dli_fname).parent_path() / name;
}

}  // namespace lockstep::detail
