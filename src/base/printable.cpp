#include "base/printable.h"

#include <cstddef>

namespace lockstep::detail {

// ASCII's control characters, and those of Unicode that have two bytes in UTF-8, 0xC2 and 0x80 to 0x9F.
std::string printable(std::string_view text) {
  std::string shown(text);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto letter = static_cast<unsigned char>(shown[i]);
    const bool follows_c2 = i > 0 && shown[i - 1] == '\xC2' && letter >= 0x80 && letter < 0xA0;
    if (follows_c2) shown[i - 1] = '?';
    if (letter < 0x20 || letter == 0x7f || follows_c2) shown[i] = '?';
  }
  return shown;
}

}  // namespace lockstep::detail
