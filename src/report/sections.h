// The parts of the page, from its top to its end.
#pragma once

#include <span>
#include <string>

#include "report/curve.h"
#include "report/html_writer.h"

namespace lockstep::detail {

using ComparedRuns = std::span<const ComparedRun>;

/// A row per run: how it ended, how much it did and how fast.
void write_overview(HtmlWriter& page, ComparedRuns runs);
/// What failed, of those that did.
void write_failures(HtmlWriter& page, ComparedRuns runs);
/// The curves called `names`: metrics, learning rates and throughput; and their last values.
void write_curves(HtmlWriter& page, ComparedRuns runs, std::span<const std::string> names);
/// Of traces: a bar per rank; else the table of another profiler.
void write_times(HtmlWriter& page, ComparedRuns runs);
/// The largest resident set of each rank.
void write_memory(HtmlWriter& page, ComparedRuns runs);
/// The options that differ, and all of them.
void write_config(HtmlWriter& page, ComparedRuns runs);
/// Versions, ranks, strategy.
void write_environment(HtmlWriter& page, ComparedRuns runs);

/// How a run ended, in a word: "success", "failed", ...
std::string status_of(const RunRecord& run);

}  // namespace lockstep::detail
