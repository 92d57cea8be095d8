#include "formats/utf8.h"

#include <cstddef>

namespace lockstep::detail {
namespace {

/// What may follow a first byte: how many bytes, and the range of the first of these.
struct Tail {
  std::size_t bytes;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

constexpr std::size_t kNoFirstByte = 4;

constexpr Tail tail_of(unsigned char first) {
  if (first < 0x80) return {0};
  if (first < 0xC2) return {kNoFirstByte};
  if (first < 0xE0) return {1};
  if (first == 0xE0) return {.bytes = 2, .low = 0xA0};
  if (first == 0xED) return {.bytes = 2, .high = 0x9F};
  if (first < 0xF0) return {2};
  if (first == 0xF0) return {.bytes = 3, .low = 0x90};
  if (first < 0xF4) return {3};
  if (first == 0xF4) return {.bytes = 3, .high = 0x8F};
  return {kNoFirstByte};
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (std::size_t i = 0; i < bytes.size();) {
    const Tail tail = tail_of(at(i));
    if (tail.bytes == kNoFirstByte || bytes.size() - i <= tail.bytes) return false;
    for (std::size_t k = 1; k <= tail.bytes; ++k) {
      const bool fits = k == 1 ? at(i + k) >= tail.low && at(i + k) <= tail.high : (at(i + k) & 0xC0) == 0x80;
      if (!fits) return false;
    }
    i += tail.bytes + 1;
  }
  return true;
}

}  // namespace lockstep::detail
