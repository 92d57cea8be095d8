// metrics.csv, as CsvLogger and Lightning's CSVLogger write it.
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

}  // namespace lockstep::detail
