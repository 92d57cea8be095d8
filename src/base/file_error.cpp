#include "base/file_error.h"

namespace lockstep::detail {

ErrorParts unreadable_file(const std::filesystem::path& file, const std::string& reason) {
  return {.what = "'" + file.string() + "' cannot be read", .got = reason};
}

}  // namespace lockstep::detail
