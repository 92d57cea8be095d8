// Paths into a StateTree, written as JSON pointers without the first slash.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::detail {

/// `name` as one part of a path.
inline std::string escaped(std::string_view name) {
  std::string text;
  for (const char letter : name) {
    if (letter == '~') {
      text += "~0";
    } else if (letter == '/') {
      text += "~1";
    } else {
      text += letter;
    }
  }
  return text;
}

/// The path of `name` below `path`.
inline std::string below(const std::string& path, std::string_view name) {
  return path.empty() ? escaped(name) : path + '/' + escaped(name);
}

}  // namespace lockstep::detail
