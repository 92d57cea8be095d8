#include "profilers/report_table.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/error.h>

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

namespace {

std::string path_safe(std::string_view name) {
  std::string safe;
  for (const char letter : name) {
    const bool refused = std::string_view("\\/:*?\"<>|\n\r\t_").find(letter) != std::string_view::npos;
    if (!refused) safe += letter;
    if (refused && !safe.ends_with('_')) safe += '_';
  }
  const auto first = safe.find_first_not_of(' ');
  return first == std::string::npos ? "" : safe.substr(first, safe.find_last_not_of(' ') - first + 1);
}

}  // namespace

std::string report_file_name(const std::optional<std::string>& stage, std::string_view filename,
                             const std::optional<int>& rank, std::string_view extension) {
  std::string name;
  const auto add = [&name](std::string_view part) { name.append(name.empty() ? "" : "-").append(part); };
  if (stage) add(*stage);
  if (!filename.empty()) add(filename);
  if (rank) add(std::to_string(*rank));
  name = path_safe(name);
  return (name.empty() ? "profile" : name).append(extension);
}

void append_to_file(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file, std::ios::app);
  stream << text << std::flush;
  if (!stream) throw IoError("profilers", {.what = "cannot write '" + file.string() + "'"});
}

namespace {

double mean_s(const SimpleRow& row) { return row.total_s / static_cast<double>(row.calls); }

std::string long_table(std::vector<SimpleRow>& rows, double run_s) {
  std::ranges::stable_sort(rows, std::greater(), &SimpleRow::total_s);
  std::uint64_t calls = 0;
  std::vector<ReportRow> lines;
  for (const auto& row : rows) {
    calls += row.calls;
    lines.push_back({row.action, report_number(mean_s(row)), std::to_string(row.calls),
                     report_number(row.total_s), report_number(100 * row.total_s / run_s)});
  }
  return report_table({"Action", "Mean duration (s)", "Num calls", "Total time (s)", "Percentage %"}, lines,
                      {"Total", "-", std::to_string(calls), report_number(run_s), "100 %"});
}

std::string short_table(std::vector<SimpleRow>& rows) {
  std::ranges::stable_sort(rows, std::greater(), mean_s);
  std::vector<ReportRow> lines;
  for (const auto& row : rows) {
    lines.push_back({row.action, report_number(mean_s(row)), report_number(row.total_s)});
  }
  return report_table({"Action", "Mean duration (s)", "Total time (s)"}, lines);
}

}  // namespace

std::string simple_report(const std::string& heading, std::vector<SimpleRow> rows, double run_s,
                          bool extended) {
  const auto text = heading + "\n";
  if (rows.empty()) return text + "\n";
  return text + (extended ? long_table(rows, run_s) : short_table(rows));
}

}  // namespace lockstep::detail
