// Small parts of the page: tables, bars, and numbers with their units.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

#include "report/html_writer.h"

namespace lockstep::detail {

/// `95.4 MiB`
LOCKSTEP_API std::string bytes_text(double bytes);
/// `1 h 02 min`, `3 min 20 s`, `12.3 s`, `4.56 ms`
LOCKSTEP_API std::string seconds_text(double seconds);
/// `81 %`
LOCKSTEP_API std::string percent_text(double share);

/// The classes of what belongs to run `index`: its colour, its dashes, and what its switch hides.
std::string run_classes(std::size_t index);

struct Cell {
  std::string text = {};
  std::string classes = {};
  std::optional<double> bar = {};       ///< drawn below the text; its length, 0 to 1
  std::optional<std::size_t> run = {};  ///< whose colour stands before the text
};

struct Row {
  std::vector<Cell> cells = {};
  std::string classes = {};
};

/// Which of a table's columns hold numbers, which are aligned to the right.
enum class Columns { kText, kNumbers };

/// A table whose first column names its rows.
void write_table(HtmlWriter& page, const std::vector<Cell>& header, const std::vector<Row>& rows,
                 Columns columns = Columns::kNumbers);

/// A remark in place of what is not there, or about what is.
void write_note(HtmlWriter& page, std::string_view text);

}  // namespace lockstep::detail
