// The tables of the simple and the advanced profiler.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/report/run_record.h>

namespace lockstep::detail {

/// The rows of the last table in `file`, the longest first; empty when it has none. Lightning's are read too.
/// @throws IoError when it cannot be read
LOCKSTEP_API std::vector<ProfiledAction> read_profiler_table(const std::filesystem::path& file);

}  // namespace lockstep::detail
