// summary.json and failure.json.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>
#include <lockstep/report/run_record.h>

namespace lockstep::detail {

/// @throws IoError when `file` cannot be read; DataError naming file and line where it is no JSON, or the key
///     whose value has another type
LOCKSTEP_API RunSummary read_summary(const std::filesystem::path& file);

/// @throws as read_summary()
LOCKSTEP_API RunFailure read_failure(const std::filesystem::path& file);

}  // namespace lockstep::detail
