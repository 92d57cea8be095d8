// The memory of this process.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "base/format.h"

namespace lockstep::detail {

inline std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// In GB of 2^30 bytes, with two digits behind the point.
inline std::string gigabytes(std::int64_t bytes) {
  return two_digits(static_cast<double>(bytes) / (1 << 30));
}

}  // namespace lockstep::detail
