// Integers as bytes, the least significant first.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>

namespace lockstep::detail {

template <std::unsigned_integral Unsigned>
void append_little_endian(std::string& bytes, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    bytes += static_cast<char>(value >> (8 * byte) & 0xff);
  }
}

}  // namespace lockstep::detail
