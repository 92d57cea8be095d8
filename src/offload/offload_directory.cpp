#include "offload/offload_directory.h"

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "offload/file_space.h"

namespace lockstep::offload {

std::filesystem::path temporary_directory(const std::string& option) {
  std::error_code failure;
  auto directory = std::filesystem::temp_directory_path(failure);
  if (!failure) return directory;
  throw ConfigError("offload", {.what = "the directory of temporary files (TMPDIR) is not there",
                                .expected = "a directory for what lies on disk",
                                .got = failure.message(),
                                .hint = "name one by " + option});
}

void warn_of_tmpfs(const std::filesystem::path& directory, const std::string& option) {
  if (is_in_memory(directory))
    log_warning(option + " '" + directory.string() +
                "' is a tmpfs: what lies there takes memory, and saves none");
}

}  // namespace lockstep::offload
