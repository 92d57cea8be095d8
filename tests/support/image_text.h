// Pictures for tests.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace lockstep::test {

/// The bytes of tests/formats/images/NAME.
inline std::string picture(const std::string& name) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/formats/images/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lockstep::test
