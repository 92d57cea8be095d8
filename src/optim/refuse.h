// Short forms for this module's errors.
#pragma once

#include <string>

#include <lockstep/base/error.h>

namespace lockstep::detail {

/// @throws ConfigError of module optim
[[noreturn]] void refuse(std::string what, std::string expected, std::string got, std::string hint = "");

/// @throws ConfigError if `allowed` is false: `field` (such as "AdamW.lr") is `value`, where `expected` is
/// wanted
void require(bool allowed, const std::string& field, double value, const std::string& expected);

/// `a, b, c, ... (12)`: the first few of many names, for an error's text.
template <class Names, class NameOf>
std::string some_of(const Names& names, NameOf name_of) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& entry : names) {
    if (shown == 5) return text + ", ... (" + std::to_string(names.size()) + ")";
    text += (shown++ == 0 ? "" : ", ") + std::string(name_of(entry));
  }
  return text;
}

}  // namespace lockstep::detail
