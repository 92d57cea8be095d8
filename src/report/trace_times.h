// Where the time went, of the time lines that TraceProfiler wrote.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/report/run_record.h>

namespace lockstep::detail {

/// The times in `files`: one per rank and stage, or merged ones. Of a rank whose stage is in several files
/// the first one counts. What an action does itself counts as what its category says, without the actions
/// within it; hooks and operators within a collective belong to it.
/// @throws DataError when a file is no trace; IoError when it cannot be read
LOCKSTEP_API std::vector<StageTimes> read_trace_times(std::span<const std::filesystem::path> files);

/// Whether `file` begins as a trace does.
LOCKSTEP_API bool is_trace(const std::filesystem::path& file);

}  // namespace lockstep::detail
