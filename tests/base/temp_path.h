// Paths for files that tests write, inside the build folder.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace lockstep::demo {

/// A path of this process's own; its folder exists.
inline std::string temp_path(const std::string& name) {
  const auto folder = std::filesystem::path(LOCKSTEP_BINARY_DIR) / "test_files";
  std::filesystem::create_directories(folder);
  return (folder / (std::to_string(getpid()) + "_" + name)).string();
}

}  // namespace lockstep::demo
