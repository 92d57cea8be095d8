// Reads the result files of a run: metrics.csv, summary.json and failure.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/report/run_record.h>

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

}  // namespace lockstep::detail
