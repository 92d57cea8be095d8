// What becomes of the rows of an earlier run.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Renames `file`, if there is one, to the first free of metrics.1.csv, metrics.2.csv, ...: the run that
/// wrote it may have been interrupted, and go on now.
/// @throws std::filesystem::filesystem_error
LOCKSTEP_API void put_aside(const std::filesystem::path& file);

}  // namespace lockstep::detail
