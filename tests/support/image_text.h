// Pictures for tests.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "support/paths.h"

namespace lockstep::test {

/// The bytes of tests/formats/images/NAME.
inline std::string picture(const std::string& name) {
  std::ifstream file(in_repository("tests/formats/images/" + name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lockstep::test
