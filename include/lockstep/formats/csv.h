// Tables of numbers from CSV files, plain or compressed with gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// Whether the first line holds names instead of numbers.
enum class CsvHeader {
  kAuto,  ///< it does when none of its fields is a number, and not all of them are empty
  kNone,  ///< numbers from the first row on
  kFirst  ///< the first row has the names of the columns
};

/// How read_csv reads.
struct CsvOptions {
  char delimiter = ',';                 ///< between fields; spaces around a field are ignored
  CsvHeader header = CsvHeader::kAuto;  ///< whether the first line holds names
};

/// What a CSV file held.
struct LOCKSTEP_API CsvTable {
  /// Rows in lines that follow each other.
  struct Stretch {
    std::int64_t row = 0;   ///< the first of them
    std::int64_t line = 1;  ///< of the file, that holds it
  };

  std::vector<double> values;      ///< row by row, rows * columns numbers
  std::int64_t rows = 0;           ///< at least 1
  std::int64_t columns = 0;        ///< at least 1
  std::vector<std::string> names;  ///< of the columns; empty when the file has no header
  std::vector<Stretch> stretches;  ///< from the first row to the last; blank lines lie between them

  /// The number in a row and column, from 0, which must exist.
  double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }

  /// The line of the file that holds `row`, counted from 1.
  std::int64_t line_of(std::int64_t row) const;
};

/// Reads a table of numbers. Lines end in LF or CRLF, the last one need not end; numbers are written as
/// in C++ ("1", "-2.5e3"), whatever the locale; fields may be in quotes. Blank lines are passed over.
/// Compression is told by the content, and concatenated members are read on. Blocking.
/// @throws DataError naming file, line and column, with the text that was there: a line with another
///     number of fields, a field that is empty or no finite number, a file that is missing, unreadable,
///     empty or ends amid its compressed data
LOCKSTEP_API CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options = {});

}  // namespace lockstep
