// Reads TFRecord files, without the code that writes them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test {

/// CRC-32C, bit by bit.
inline std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t rest = ~0u;
  for (const char byte : bytes) {
    rest ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1) * 0x82f63b78u;
  }
  return ~rest;
}

template <class Unsigned>
Unsigned little_endian(std::string_view bytes) {
  Unsigned value = 0;
  for (std::size_t i = sizeof value; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Whether the four bytes at `checksum` are the masked checksum of `bytes`.
inline bool checks(std::string_view bytes, std::string_view checksum) {
  return little_endian<std::uint32_t>(checksum) == std::rotr(slow_crc32c(bytes), 15) + 0xa282ead8u;
}

/// The records of a file. A failure of the test when a checksum is wrong or the last one is cut off.
inline std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> found;
  while (!file.empty()) {
    if (file.size() < 16) return ADD_FAILURE() << file.size() << " bytes are left", found;
    const auto size = little_endian<std::uint64_t>(file);
    if (!checks(file.substr(0, 8), file.substr(8)) || file.size() < 16 + size) {
      return ADD_FAILURE() << "no record of " << size << " bytes", found;
    }
    EXPECT_TRUE(checks(file.substr(12, size), file.substr(12 + size)));
    found.emplace_back(file.substr(12, size));
    file.remove_prefix(16 + size);
  }
  return found;
}

}  // namespace lockstep::test
