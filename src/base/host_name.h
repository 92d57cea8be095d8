// What this machine calls itself, and since when it runs.
#pragma once

#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace lockstep::detail {

inline std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Another text each time that the machine starts; empty where the kernel tells none. Source: random(4).
inline std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace lockstep::detail
