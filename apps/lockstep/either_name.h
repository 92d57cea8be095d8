// The names of flags that torchrun takes in two forms.
#pragma once

#include <algorithm>
#include <string>

/// "--a-b" becomes "--a-b,--a_b".
inline std::string either(std::string names) {
  auto other = names.substr(names.find("--"));
  std::ranges::replace(other.begin() + 2, other.end(), '-', '_');
  return names + "," + other;
}
