#include "support/paths.h"

namespace lockstep::test {

std::filesystem::path in_repository(std::string_view name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / name;
}

std::filesystem::path in_build(std::string_view name) {
  return std::filesystem::path(LOCKSTEP_BINARY_DIR) / name;
}

}  // namespace lockstep::test
