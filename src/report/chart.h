// One metric of several runs as a drawing.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <lockstep/base/export.h>

#include "report/curve.h"
#include "report/html_writer.h"

namespace lockstep::detail {

/// What to draw, and how much of it.
struct ChartOptions {
  bool may_be_log = true;     ///< see Axis::of_values
  std::size_t buckets = 300;  ///< see reduced()
};

/// Appends a figure to `page`: the curve called `name` of each of `runs` that has it, over steps and over
/// epochs, as it is and smoothed; the page's style and controls say which of them is seen. The points stand
/// beside it as JSON for the script that shows values: {"name", "series": [{"run", "step", "epoch",
/// "value"}]}. Run i is drawn in colour i.
LOCKSTEP_API void write_chart(HtmlWriter& page, std::span<const ComparedRun> runs, const std::string& name,
                              const ChartOptions& options);

}  // namespace lockstep::detail
