#include "profilers/report_table.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace lockstep::detail {
namespace {

// Letters, not bytes of UTF-8.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string padded(std::string_view text, std::size_t width) {
  return std::string(text) + std::string(width - std::min(width, width_of(text)), ' ');
}

std::string line(const ReportRow& row, std::size_t action_width) {
  std::string text = "\n|";
  for (std::size_t column = 0; column < row.size(); ++column) {
    text += "  " + padded(row[column], column == 0 ? action_width : 15) + "\t|";
  }
  return text;
}

// Letters of the line, its line feed too, with tabs as wide as a terminal makes them.
std::size_t width_with_tabs(std::string_view text) {
  std::size_t column = 0;
  for (const char letter : text.substr(1)) column = letter == '\t' ? (column / 8 + 1) * 8 : column + 1;
  return column + 1;
}

}  // namespace

std::string report_table(const ReportRow& header, std::span<const ReportRow> rows, const ReportRow& total) {
  std::size_t action_width = 0;
  for (const auto& row : rows) action_width = std::max(action_width, width_of(row[0]));
  const auto header_line = line(header, action_width);
  const auto rule = "\n" + std::string(width_with_tabs(header_line), '-');
  std::string text = rule + header_line + rule;
  if (!total.empty()) text += line(total, action_width) + rule;
  for (const auto& row : rows) text += line(row, action_width);
  return text + rule + "\n";
}

std::string report_number(double number) {
  auto text = fmt::format("{:.4e}", number);
  const auto e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  const auto suffix = exponent < -4 || exponent > 3 ? text.substr(e) : "";
  text = suffix.empty() ? fmt::format("{:.{}f}", number, 4 - exponent) : text.substr(0, e);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) suffix.empty() ? text.push_back('0') : text.pop_back();
  return text + suffix;
}

}  // namespace lockstep::detail
