// The tables and file names of the reports of profilers, identical with Lightning's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

using ReportRow = std::vector<std::string>;

/// `header`, the row `total` unless it is empty, and `rows`, with lines between. The first column is as wide
/// as the widest action of `rows`, the others are 15 wide; longer texts stand over.
std::string report_table(const ReportRow& header, std::span<const ReportRow> rows,
                         const ReportRow& total = {});

/// `number` with five digits, as Python's format(number, ".5"): `0.25041`, `16.0`, `7.1e-06`, `1.2346e+04`.
LOCKSTEP_API std::string report_number(double number);

/// Lightning's name, `STAGE-FILENAME-RANK` and the extension: parts that are absent or empty are left out,
/// `profile` when all are; each run of letters that some system refuses in names becomes one `_`.
LOCKSTEP_API std::string report_file_name(const std::optional<std::string>& stage, std::string_view filename,
                                          const std::optional<int>& rank, std::string_view extension);

/// Appends `text` to `file`; makes its folder.
/// @throws IoError or std::filesystem::filesystem_error
void append_to_file(const std::filesystem::path& file, std::string_view text);

struct SimpleRow {
  std::string action;
  std::uint64_t calls;  ///< at least 1
  double total_s;
};

/// Lightning's table. `run_s` is what the percentages are of; without `extended` they and the number of calls
/// are left out, and actions are sorted by their mean, not by their total.
LOCKSTEP_API std::string simple_report(const std::string& heading, std::vector<SimpleRow> rows, double run_s,
                                       bool extended);

}  // namespace lockstep::detail
