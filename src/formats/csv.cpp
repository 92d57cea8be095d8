#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/formats/csv.h>

#include "base/format.h"
#include "formats/file_text.h"
#include "formats/gzip_file.h"

namespace lockstep {
namespace {

using detail::in_quotes;

constexpr std::string_view kBlanksOfFields = " \t";

/// 0 or infinity: what is nearest to a number that no double holds.
double nearest(std::string_view number) {
  long double value = 0;
  const auto error = std::from_chars(number.data(), number.data() + number.size(), value).ec;
  const bool is_small = error == std::errc()
                            ? std::abs(value) < 1
                            : number.find("e-") != number.npos || number.find("E-") != number.npos;
  return is_small ? 0 : std::numeric_limits<double>::infinity();
}

/// The number in `field`, also one that is infinite, too large for a double, or NaN.
std::optional<double> any_number(std::string_view field) {
  field = detail::trimmed(field, kBlanksOfFields);
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  double value = 0;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return std::nullopt;
  return error == std::errc() ? value : nearest(field);
}

// Hexadecimal, or with a decimal comma.
bool is_number_of_others(std::string_view field) {
  field = detail::trimmed(field, kBlanksOfFields);
  if (field.starts_with('+') || field.starts_with('-')) field.remove_prefix(1);
  if (field.starts_with("0x") || field.starts_with("0X"))
    return field.size() > 2 && field.find_first_not_of("0123456789abcdefABCDEF", 2) == field.npos;
  auto number = std::string(field);
  std::erase(number, '.');
  std::ranges::replace(number, ',', '.');
  return number.find('.') != number.npos && any_number(number).has_value();
}

std::optional<double> finite_number(std::string_view field) {
  const auto value = any_number(field);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// Two quotes within a quoted field stand for one.
std::size_t closing_quote(std::string_view text, std::size_t opening) {
  auto quote = text.find('"', opening + 1);
  while (quote != text.npos && text.substr(quote).starts_with("\"\"")) quote = text.find('"', quote + 2);
  return quote;
}

/// Where the first field of `line` ends, which may be in double quotes as RFC 4180 has it.
std::size_t end_of_field(std::string_view line, char delimiter) {
  const auto end = line.find(delimiter);
  const auto first = line.find_first_not_of(kBlanksOfFields);
  if (first >= end || line[first] != '"') return end;  // the delimiter may be a blank, or a quote
  const auto closing = closing_quote(line, first);
  return closing == line.npos ? line.npos : line.find(delimiter, closing);
}

/// Calls visit(field) for each field of `line` until it returns false; without blanks and the quotes around
/// it.
template <class Visit>
void each_field(std::string_view line, char delimiter, Visit visit) {
  for (;;) {
    const std::size_t end = end_of_field(line, delimiter);
    auto field = detail::trimmed(line.substr(0, end), kBlanksOfFields);
    if (field.starts_with('"') && closing_quote(field, 0) == field.size() - 1)
      field = field.substr(1, field.size() - 2);
    if (!visit(field) || end == std::string_view::npos) return;
    line.remove_prefix(end + 1);
  }
}

std::string without_doubled_quotes(std::string_view field) {
  std::string text;
  for (std::size_t i = 0; i < field.size(); ++i) {
    text += field[i];
    if (field.substr(i).starts_with("\"\"")) ++i;
  }
  return text;
}

class Reader {
 public:
  Reader(const std::filesystem::path& path, const CsvOptions& options)
      : path_(path), options_(options), lines_(path) {}

  CsvTable read() {
    std::string_view line;
    bool first = true;
    while (lines_.next(line)) {
      if (lines_.line_number() == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
      if (is_blank(line)) {
        // Says nothing, as in numpy and pandas.
      } else if (std::exchange(first, false) && is_header(line)) {
        take_names(line);
      } else {
        take_row(line);
      }
    }
    if (table_.rows == 0)
      fail("no data", "a row of numbers", table_.names.empty() ? "an empty file" : "a header only");
    return std::move(table_);
  }

 private:
  // A row of numbers that are written otherwise, or of none, is refused as any row is.
  bool is_header(std::string_view line) const {
    if (options_.header != CsvHeader::kAuto) return options_.header == CsvHeader::kFirst;
    bool has_number = false, has_name = false;
    each_field(line, options_.delimiter, [&](std::string_view field) {
      has_number = any_number(field).has_value() || is_number_of_others(field);
      has_name = has_name || !field.empty();
      return !has_number;
    });
    return !has_number && has_name;
  }

  // Where the delimiter is a blank, a line of blanks has empty fields.
  bool is_blank(std::string_view line) const {
    return detail::trimmed(line, kBlanksOfFields).empty() && line.find(options_.delimiter) == line.npos;
  }

  void take_names(std::string_view line) {
    each_field(line, options_.delimiter, [&](std::string_view field) {
      if (field.starts_with('"')) fail("a quote that is not closed in its line", "a name", in_quotes(field));
      table_.names.push_back(without_doubled_quotes(field));
      return true;
    });
    table_.columns = static_cast<std::int64_t>(table_.names.size());
  }

  void take_row(std::string_view line) {
    std::int64_t fields = 0;
    each_field(line, options_.delimiter, [&](std::string_view field) {
      ++fields;
      const auto value = finite_number(field);
      if (!value) {
        fail("column " + std::to_string(fields) + " holds no number", "a finite number",
             detail::trimmed(field, kBlanksOfFields).empty() ? "an empty field" : in_quotes(field),
             hint_of_delimiter(field));
      }
      table_.values.push_back(*value);
      return true;
    });
    if (table_.columns == 0) table_.columns = fields;
    if (fields != table_.columns) {
      fail("wrong number of fields", std::to_string(table_.columns), std::to_string(fields), hint_of_names());
    }
    note_line();
    ++table_.rows;
  }

  void note_line() {
    const auto line = lines_.line_number();
    const bool follows = !table_.stretches.empty() && table_.line_of(table_.rows) == line;
    if (!follows) table_.stretches.push_back({.row = table_.rows, .line = line});
  }

  std::string hint_of_delimiter(std::string_view field) const {
    const bool has_blanks = field.find(' ') != field.npos && any_number(field.substr(0, field.find(' ')));
    if (field.find_first_of(";\t|") == field.npos && !has_blanks) return "";
    return "fields are divided by " + in_quotes({&options_.delimiter, 1}) +
           ": set CsvOptions::delimiter where it is another character";
  }

  std::string hint_of_names() const {
    const bool is_comment = !table_.names.empty() && table_.names.front().starts_with('#');
    return is_comment ? "the first line, which begins with #, was taken for the names of columns: remove it"
                      : "";
  }

  [[noreturn]] void fail(std::string what, std::string expected, std::string got,
                         std::string hint = {}) const {
    throw DataError("formats", {.what = std::move(what),
                                .expected = std::move(expected),
                                .got = std::move(got),
                                .where = path_.string() + ":" + std::to_string(lines_.line_number()),
                                .hint = std::move(hint)});
  }

  const std::filesystem::path& path_;
  const CsvOptions& options_;
  detail::LineReader lines_;
  CsvTable table_;
};

}  // namespace

std::int64_t CsvTable::line_of(std::int64_t row) const {
  const auto next = std::ranges::upper_bound(stretches, row, {}, &Stretch::row);
  const auto& stretch = *std::prev(next);
  return stretch.line + row - stretch.row;
}

CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  return Reader(path, options).read();
}

}  // namespace lockstep
