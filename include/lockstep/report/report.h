// Runs as one page for a browser, and as curves for a terminal.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/report/run_record.h>

namespace lockstep {

/// What a report shows.
struct ReportOptions {
  std::string title = {};                 ///< empty: the names of the runs
  std::vector<std::string> metrics = {};  ///< curves to draw; empty: all
};

/// A page that compares `runs`: HTML with its style, drawings and script in it, which asks no network for
/// anything. At most 2 MB for what runs usually leave: long curves keep the least and the largest value of
/// each pixel. Every text is escaped.
/// @throws ConfigError when `runs` is empty, or no run has one of the metrics
LOCKSTEP_API std::string report_page(const std::vector<RunRecord>& runs, const ReportOptions& options = {});

/// Writes report_page() to `file`, which is then complete or as it was. Blocking.
/// @throws IoError when it cannot be written, and as report_page()
LOCKSTEP_API void write_report(const std::vector<RunRecord>& runs, const std::filesystem::path& file,
                               const ReportOptions& options = {});

/// A terminal's size and abilities.
struct TerminalOptions {
  int columns = 80;     ///< at least 30 are used
  int rows = 12;        ///< of one drawing, without its axis; at least 3 are used
  bool colour = false;  ///< ANSI colours: runs share a drawing. Without, each has one of its own
};

/// The curves of `runs` in Braille characters (UTF-8), one drawing per metric.
/// @throws as report_page()
LOCKSTEP_API std::string plot_curves(const std::vector<RunRecord>& runs, const ReportOptions& options = {},
                                     const TerminalOptions& terminal = {});

/// What standard output is: its width, and whether colours are welcome (they are on a terminal, unless
/// NO_COLOR is set). COLUMNS wins over the terminal's width; 80 where nobody says.
LOCKSTEP_API TerminalOptions standard_output();

}  // namespace lockstep
