// The names of profilers' files, and appending to them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Lightning's name, `STAGE-FILENAME-RANK` and the extension: parts that are absent or empty are left out,
/// `profile` when all are; each run of letters that some system refuses in names becomes one `_`.
LOCKSTEP_API std::string report_file_name(const std::optional<std::string>& stage, std::string_view filename,
                                          const std::optional<int>& rank, std::string_view extension);

/// Appends `text` to `file`; makes its folder.
/// @throws IoError or std::filesystem::filesystem_error
void append_to_file(const std::filesystem::path& file, std::string_view text);

}  // namespace lockstep::detail
