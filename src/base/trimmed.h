// Texts without what surrounds them.
#pragma once

#include <string_view>

namespace lockstep::detail {

/// `text` without `blanks` at both ends; of nothing but blanks, its empty end.
inline std::string_view trimmed(std::string_view text, std::string_view blanks = " ") {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return text.substr(text.size());
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace lockstep::detail
