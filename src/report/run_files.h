// Reads the files of a run: metrics.csv, summary.json and failure.json, and the tables and time lines of
// profilers.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/report/report.h>

namespace lockstep::detail {

/// The curves of one metrics.csv, by name, each by step; a column without values gives none. A last line that
/// has no end is being written and is left out. Without an epoch a row has that of the row before.
/// @throws DataError naming file and line: no columns `epoch` and `step`, a wrong number of fields, a field
///     that is no number
LOCKSTEP_API std::vector<MetricCurve> read_metrics_file(const std::filesystem::path& file);

/// metrics.1.csv, metrics.2.csv, ... and metrics.csv of `folder`, in this order, as curves: where a later
/// file has a metric at some step, that and what follows replaces the earlier files' values.
LOCKSTEP_API std::vector<MetricCurve> read_metrics(const std::filesystem::path& folder);

/// @throws IoError when `file` cannot be read; DataError naming file and line where it is no JSON, or the key
///     whose value has another type
LOCKSTEP_API RunSummary read_summary(const std::filesystem::path& file);

/// @throws as read_summary()
LOCKSTEP_API RunFailure read_failure(const std::filesystem::path& file);

/// What a thread was doing.
enum class Phase { kCompute, kCommunication, kData, kCheckpoint };
inline constexpr std::size_t kPhases = 4;

/// The phase of an action, by its category in traces and by Lightning's names of those that fetch a batch.
LOCKSTEP_API Phase phase_of(std::string_view category, std::string_view name);

struct Call {
  double begin_us = 0;
  double end_us = 0;
  Phase phase = Phase::kCompute;
};

/// The time that a thread spent in each phase.
struct PhaseTimes {
  std::array<double, kPhases> us = {};
  double span_us = 0;  ///< from the first begin to the last end

  double operator[](Phase phase) const { return us[static_cast<std::size_t>(phase)]; }
};

/// Adds up `calls`, which contain each other or lie apart: each counts for the time that no call within it
/// covers. Calls within communication, data or checkpoint are part of it.
LOCKSTEP_API PhaseTimes phase_times(std::vector<Call> calls);

/// The times in `files`: one per rank and stage, or merged ones. Of a rank whose stage is in several files
/// the first one counts. What an action does itself counts as what its category says, without the actions
/// within it; hooks and operators within a collective belong to it.
/// @throws DataError when a file is no trace; IoError when it cannot be read
LOCKSTEP_API std::vector<StageTimes> read_trace_times(std::span<const std::filesystem::path> files);

/// Whether `file` begins as a trace does.
LOCKSTEP_API bool is_trace(const std::filesystem::path& file);

/// The rows of the last table in `file`, the longest first; empty when it has none. Lightning's are read too.
/// @throws IoError when it cannot be read
LOCKSTEP_API std::vector<ProfiledAction> read_profiler_table(const std::filesystem::path& file);

}  // namespace lockstep::detail
