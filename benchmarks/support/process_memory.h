// How much memory this process holds, as Linux counts it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace bench {

/// The line `key` of /proc/self/status, in bytes; 0 where there is none.
inline std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::int64_t kibibytes = 0;
    if (word == key + ":" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

/// Memory that is held now.
inline std::int64_t resident_bytes() { return status_bytes("VmRSS"); }

/// The most that was ever held.
inline std::int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

}  // namespace bench
