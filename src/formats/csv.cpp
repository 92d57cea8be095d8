#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/formats/csv.h>

#include "base/trimmed.h"
#include "formats/in_quotes.h"
#include "formats/line_reader.h"

namespace lockstep {
namespace {

using detail::in_quotes;

constexpr std::string_view kBlanks = " \t";

std::optional<double> number(std::string_view field) {
  field = detail::trimmed(field, kBlanks);
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  double value = 0;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// Calls visit(field) for each field of `line` until it returns false.
template <class Visit>
void each_field(std::string_view line, char delimiter, Visit visit) {
  for (;;) {
    const std::size_t end = line.find(delimiter);
    if (!visit(line.substr(0, end)) || end == std::string_view::npos) return;
    line.remove_prefix(end + 1);
  }
}

class Reader {
 public:
  Reader(const std::filesystem::path& path, const CsvOptions& options)
      : path_(path), options_(options), lines_(path) {}

  CsvTable read() {
    std::string_view line;
    bool first = true;
    while (lines_.next(line)) {
      if (first && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
      if (is_blank(line)) {  // at the end it says nothing, as in files of UCI's
        if (blank_line_ == 0) blank_line_ = lines_.line_number();
      } else if (blank_line_ != 0) {
        fail_at(blank_line_, "empty line", "a row of numbers", "rows after it");
      } else if (first && is_header(line)) {
        take_names(line);
      } else {
        take_row(line);
      }
      first = false;
    }
    if (table_.rows == 0)
      fail("no data", "a row of numbers", table_.names.empty() ? "an empty file" : "a header only");
    return std::move(table_);
  }

 private:
  bool is_header(std::string_view line) const {
    if (options_.header != CsvHeader::kAuto) return options_.header == CsvHeader::kFirst;
    bool any_number = false;
    each_field(line, options_.delimiter,
               [&](std::string_view field) { return !(any_number = number(field).has_value()); });
    return !any_number;
  }

  // With a blank for delimiter a line of blanks is one of empty fields.
  bool is_blank(std::string_view line) const {
    return detail::trimmed(line, kBlanks).empty() && line.find(options_.delimiter) == line.npos;
  }

  void take_names(std::string_view line) {
    each_field(line, options_.delimiter, [&](std::string_view field) {
      table_.names.emplace_back(detail::trimmed(field, kBlanks));
      return true;
    });
    table_.columns = static_cast<std::int64_t>(table_.names.size());
    table_.first_line = 2;
  }

  void take_row(std::string_view line) {
    std::int64_t fields = 0;
    each_field(line, options_.delimiter, [&](std::string_view field) {
      ++fields;
      const auto value = number(field);
      if (!value) {
        fail("column " + std::to_string(fields) + " holds no number", "a finite number",
             detail::trimmed(field, kBlanks).empty() ? "an empty field" : in_quotes(field));
      }
      table_.values.push_back(*value);
      return true;
    });
    if (table_.columns == 0) table_.columns = fields;
    if (fields != table_.columns) {
      fail("wrong number of fields", std::to_string(table_.columns), std::to_string(fields));
    }
    ++table_.rows;
  }

  [[noreturn]] void fail(std::string what, std::string expected, std::string got) const {
    fail_at(lines_.line_number(), std::move(what), std::move(expected), std::move(got));
  }

  [[noreturn]] void fail_at(std::int64_t line, std::string what, std::string expected, std::string got) const {
    throw DataError("formats", {.what = std::move(what),
                                .expected = std::move(expected),
                                .got = std::move(got),
                                .where = path_.string() + ":" + std::to_string(line)});
  }

  const std::filesystem::path& path_;
  const CsvOptions& options_;
  detail::LineReader lines_;
  std::int64_t blank_line_ = 0;  // the first of those that were met last; 0: none
  CsvTable table_;
};

}  // namespace

CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  return Reader(path, options).read();
}

}  // namespace lockstep
