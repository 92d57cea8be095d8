// Numbers of bytes in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep::offload {

/// `1610612736 bytes (1.5 GiB)`; below a KiB only bytes.
inline std::string byte_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto text = std::to_string(bytes) + " bytes";
  if (bytes < 1024) return text;
  double number = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; number >= 1024; ++unit) number /= 1024;
  char in_units[32];
  std::snprintf(in_units, sizeof in_units, " (%.1f %s)", number, kUnits[unit]);
  return text + in_units;
}

}  // namespace lockstep::offload
