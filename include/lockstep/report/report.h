// Runs, as they are read from their folders, as one page for a browser, and as curves for a terminal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// One value of a metric.
struct MetricPoint {
  std::int64_t step = 0;   ///< optimizer steps, counted from 0
  std::int64_t epoch = 0;  ///< counted from 0
  double value = 0;        ///< may be infinite or NaN
};

/// All values of one metric.
struct MetricCurve {
  std::string name = {};                 ///< of the metric
  std::vector<MetricPoint> points = {};  ///< by step; at least one
};

/// summary.json. What the file does not say is absent or empty.
struct RunSummary {
  std::string status = {};                        ///< how the run ended
  std::string strategy = {};                      ///< that it trained with
  std::string precision = {};                     ///< that it trained with
  std::string comm_backend = {};                  ///< what carried bytes between ranks
  std::optional<std::int64_t> world_size = {};    ///< ranks
  std::optional<std::int64_t> epochs = {};        ///< that were trained
  std::optional<std::int64_t> steps = {};         ///< optimizer steps
  std::optional<std::int64_t> samples = {};       ///< that were trained
  std::optional<double> seconds = {};             ///< of the loop
  std::optional<double> samples_per_second = {};  ///< of the loop
  std::optional<double> start_to_first_collective_s =
      {};                                          ///< from the program's start to its first collective
  std::optional<double> bytes_sent_per_step = {};  ///< in collectives and messages
  std::vector<std::int64_t> peak_rss_bytes_per_rank = {};  ///< resident memory, by rank
  std::map<std::string, std::string> versions = {};        ///< {"libtorch", "2.13.0"}
  std::map<std::string, double> xla = {};  ///< what rank 0 compiled and replayed: {"compile_seconds", 1.5}
};

/// How a rank of a failed run ended.
struct RankEnd {
  std::int64_t rank = 0;        ///< from 0
  std::string end = {};         ///< "SIGKILL", "exit code 1"; "stopped by the launcher"
  std::string collective = {};  ///< the last one: "all_reduce seq 33"
  std::string error = {};       ///< what it threw
  std::int64_t step = 0;        ///< optimizer steps that it had done
};

/// failure.json.
struct RunFailure {
  std::string message = {};         ///< of the error
  std::vector<RankEnd> ranks = {};  ///< the one that failed first, then the others
};

/// Where the time of one rank went, of its main thread: the parts add up to `span_s`, but for what no action
/// covers. In seconds.
struct RankTimes {
  int rank = 0;                           ///< from 0
  double span_s = 0;                      ///< from the first action's begin to the last one's end
  double compute_s = 0;                   ///< spent in computing
  double communication_s = 0;             ///< spent in collectives
  double data_s = 0;                      ///< spent in waiting for data
  double checkpoint_s = 0;                ///< spent in saving checkpoints
  double background_communication_s = 0;  ///< collectives of other threads, beside all that
  std::uint64_t dropped_events = 0;       ///< older ones, which the trace did not keep
  double device_span_s = 0;         ///< of the steps in which LibTorch's profiler measured a device; 0: none
  double device_kernels_s = 0;      ///< its kernels within that, of all streams
  double device_copies_s = 0;       ///< likewise
  double device_collectives_s = 0;  ///< those that the device carries out, such as NCCL's
};

/// How far apart the ranks came to their collectives.
struct ArrivalSkew {
  std::uint64_t collectives = 0;  ///< that all ranks called
  double median_s = 0;            ///< between the first rank and the last one
  double p90_s = 0;               ///< nine of ten are below
  int last_rank = 0;              ///< who came last most often
  double last_rank_share = 0;     ///< in how many of them, 0 to 1
};

/// The time lines of one stage ("fit", "validate", ...).
struct StageTimes {
  std::string stage = {};                ///< as the profiler names it
  std::vector<RankTimes> ranks = {};     ///< by rank; at least one
  std::optional<ArrivalSkew> skew = {};  ///< absent for one rank and for clocks that cannot be compared
};

/// A row in the report of the simple or the advanced profiler.
struct ProfiledAction {
  std::string name = {};                   ///< of the action
  double total_s = 0;                      ///< of all calls
  std::optional<std::int64_t> calls = {};  ///< how often; none: not known
};

/// One run.
struct RunRecord {
  std::filesystem::path folder = {};       ///< of the run
  std::vector<MetricCurve> curves = {};    ///< by name
  std::optional<RunSummary> summary = {};  ///< summary.json; none: there is no such file
  std::optional<RunFailure> failure = {};  ///< failure.json; none: there is no such file
  std::vector<std::pair<std::string, std::string>> config =
      {};                                    ///< dotted key and value, in the file's order
  std::vector<StageTimes> times = {};        ///< of traces, by stage
  std::vector<ProfiledAction> actions = {};  ///< of rank 0's table, the longest first
};

/// Reads metrics.csv with metrics.1.csv, ... of a folder that was used again, summary.json, failure.json,
/// config.yaml, and traces and tables of profilers in the folder or one below. Any of them may be missing. Of
/// steps that were done again, each metric has the last values. Blocking.
/// @throws IoError when `folder` is no run's folder or cannot be read; DataError or ConfigError naming file
///     and line of what is malformed
LOCKSTEP_API RunRecord read_run(const std::filesystem::path& folder);

/// A name for each run, by which they can be told apart: as much of the end of its path as that takes.
LOCKSTEP_API std::vector<std::string> run_names(const std::vector<RunRecord>& runs);

/// What a report shows.
struct ReportOptions {
  std::string title = {};                 ///< empty: the names of the runs
  std::vector<std::string> metrics = {};  ///< curves to draw; empty: all
  bool notes = true;                      ///< say where runs were not seeded, or differently
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
