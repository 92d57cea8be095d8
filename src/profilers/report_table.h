// The text that reports are made of, letter by letter as Lightning's.
#pragma once

#include <span>
#include <string>
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

}  // namespace lockstep::detail
