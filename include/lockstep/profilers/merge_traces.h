// Merges the time lines of several ranks into one.
#pragma once

#include <chrono>
#include <filesystem>
#include <span>

#include <lockstep/base/export.h>

namespace lockstep {

/// One rank's trace.
struct RankTrace {
  std::filesystem::path file = {};  ///< of TraceProfiler; others in Chrome's format will do
  int rank = 0;                     ///< becomes the process of its events
  std::chrono::nanoseconds offset =
      {};  ///< added to its times: rank 0's clock minus this rank's; one machine: 0
};

/// Writes the events of all `ranks` into one trace, `output`, which is complete or absent. Blocking; reads
/// the files event by event, so that their size does not matter.
/// @throws DataError when a file is no trace; IoError when one cannot be read or `output` not written
LOCKSTEP_API void merge_traces(std::span<const RankTrace> ranks, const std::filesystem::path& output);

}  // namespace lockstep
