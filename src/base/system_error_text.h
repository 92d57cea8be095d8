// The system's words for an errno value.
#pragma once

#include <string>
#include <system_error>

namespace lockstep::detail {

/// As strerror, but thread-safe.
inline std::string system_error_text(int error_number) {
  return std::generic_category().message(error_number);
}

}  // namespace lockstep::detail
