// What liblockstep_xla.so and liblockstep.so know of each other. The library's code is bound to one minor
// version of LibTorch and to the lockstep that it was built with.
#pragma once

#include <torch/headeronly/version.h>

#include <lockstep/base/version.h>

namespace lockstep::detail {

/// What the library offers, and what it was built with.
struct XlaLibrary {
  const char* lockstep = kVersion;
  int torch_major = TORCH_VERSION_MAJOR;
  int torch_minor = TORCH_VERSION_MINOR;
  /// Loads the plug-in that LOCKSTEP_PJRT_PLUGIN names, and makes LibTorch able to use its devices, of which
  /// there must be `devices`. Does nothing when called again. @throws ConfigError
  void (*load)(int devices) = nullptr;
};

/// The C symbol that gives the table.
inline constexpr const char* kXlaLibrarySymbol = "lockstep_xla_library";
using XlaLibraryFunction = const XlaLibrary* (*)();

}  // namespace lockstep::detail
