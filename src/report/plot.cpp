// Curves in a terminal, drawn in Braille characters.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/report/report.h>

#include "formats/file_text.h"
#include "report/braille.h"
#include "report/curve.h"
#include "report/page.h"

namespace lockstep::detail {
namespace {

// U+2800 and a bit for each dot.
std::string braille(unsigned char dots) {
  return {'\xE2', static_cast<char>(0xA0 + (dots >> 6)), static_cast<char>(0x80 + (dots & 0x3F))};
}

// Of the dots in a character, by row from the top and column.
constexpr unsigned char kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

}  // namespace

BrailleCanvas::BrailleCanvas(int columns, int rows)
    : columns_(columns), rows_(rows), characters_(static_cast<std::size_t>(columns * rows)) {}

void BrailleCanvas::set(int x, int y, int colour) {
  const int from_top = height() - 1 - y;
  if (x < 0 || x >= width() || from_top < 0 || from_top >= height()) return;
  auto& character = characters_[static_cast<std::size_t>(from_top / 4 * columns_ + x / 2)];
  character.dots |= kBits[from_top % 4][x % 2];
  character.colour = colour;
}

// As many dots as the longer side has.
void BrailleCanvas::draw_line(int x0, int y0, int x1, int y1, int colour) {
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int i = 0; i <= steps; ++i) {
    const double part = static_cast<double>(i) / steps;
    set(static_cast<int>(x0 + part * (x1 - x0) + 0.5), static_cast<int>(y0 + part * (y1 - y0) + 0.5), colour);
  }
}

std::string BrailleCanvas::line(int row, bool escapes) const {
  std::string text;
  int current = -1;
  for (int column = 0; column < columns_; ++column) {
    const auto& character = characters_[static_cast<std::size_t>(row * columns_ + column)];
    if (escapes && character.colour >= 0 && character.colour != current) {
      current = character.colour;
      text += fmt::format("\033[38;5;{}m", current);
    }
    text += character.dots == 0 ? " " : braille(character.dots);
  }
  return current >= 0 ? text + "\033[0m" : text;
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

using namespace detail;

// Of ANSI's 256, close to those of the page.
constexpr std::array kAnsiColours = {32, 166, 36, 175, 214, 117, 250, 185};
constexpr int kMargin = 11;  // for the numbers beside a drawing

struct Line {
  std::string run = {};
  int colour = 0;
  std::vector<CurvePoint> points = {};
};

std::vector<Line> lines_of(std::span<const ComparedRun> runs, const std::string& name, int columns) {
  std::vector<Line> lines;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const auto* curve = find_curve(*runs[run].record, name);
    if (curve == nullptr) continue;
    auto points = reduced(line_of(*curve).first, static_cast<std::size_t>(2 * columns));
    lines.push_back({.run = runs[run].name,
                     .colour = kAnsiColours[run % kAnsiColours.size()],
                     .points = std::move(points)});
  }
  return lines;
}

/// The axes that all drawings of a metric share.
struct Axes {
  Axis across;
  Axis up;
};

Axes axes_of(const std::vector<Line>& lines) {
  constexpr double kUnset = std::numeric_limits<double>::infinity();
  double first = kUnset, last = -kUnset, low = kUnset, high = -kUnset;
  for (const auto& line : lines) {
    for (const auto& [step, value, epoch] : line.points) {
      first = std::min(first, step);
      last = std::max(last, step);
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (first > last) first = last = low = high = 0;
  return {.across = Axis::linear(first, last), .up = Axis::linear(low, high)};
}

void draw(BrailleCanvas& canvas, const Line& line, const Axes& axes) {
  const auto dot = [](double place, int dots) { return static_cast<int>(std::lround(place * (dots - 1))); };
  const auto x = [&](const CurvePoint& point) { return dot(axes.across.place(point.step), canvas.width()); };
  const auto y = [&](const CurvePoint& point) { return dot(axes.up.place(point.value), canvas.height()); };
  for (std::size_t i = 0; i < line.points.size(); ++i) {
    const auto& from = line.points[i == 0 ? 0 : i - 1];
    canvas.draw_line(x(from), y(from), x(line.points[i]), y(line.points[i]), line.colour);
  }
}

std::string heading(std::span<const Line> lines, bool escapes) {
  std::string text;
  for (const auto& line : lines) {
    const auto name = printable(line.run);
    const auto value = line.points.empty() ? "" : fmt::format(" {:.6g}", line.points.back().value);
    text += "  " + (escapes ? fmt::format("\033[38;5;{}m{}\033[0m", line.colour, name) : name) + value;
  }
  return text;
}

std::string drawing(std::span<const Line> lines, const Axes& axes, const TerminalOptions& terminal) {
  const int columns = terminal.columns - kMargin;
  BrailleCanvas canvas(columns, terminal.rows);
  for (const auto& line : lines) draw(canvas, line, axes);
  std::string text;
  for (int row = 0; row < terminal.rows; ++row) {
    const bool is_end = row == 0 || row == terminal.rows - 1;
    const auto number = is_end ? short_number(row == 0 ? axes.up.high() : axes.up.low()) : "";
    text += fmt::format("{:>{}} \u2502", number, kMargin - 2) + canvas.line(row, terminal.colour) + "\n";
  }
  const auto first = short_number(axes.across.low(), 7), last = "step " + short_number(axes.across.high(), 7);
  const int between = columns - static_cast<int>(first.size());
  return text + fmt::format("{:{}}{}{:>{}}\n", "", kMargin, first, last, between);
}

std::string plot(std::span<const ComparedRun> runs, const std::string& name,
                 const TerminalOptions& terminal) {
  const auto lines = lines_of(runs, name, terminal.columns - kMargin);
  const auto axes = axes_of(lines);
  auto text = printable(name);
  if (terminal.colour) return text + heading(lines, true) + "\n" + drawing(lines, axes, terminal) + "\n";
  for (const auto& line : lines) {
    const auto alone = std::span(&line, 1);
    text += heading(alone, false) + "\n" + drawing(alone, axes, terminal);
  }
  return text + "\n";
}

// Broken at blanks; nothing for nothing.
std::string in_lines(const std::string& words, int columns) {
  std::string lines, line;
  std::istringstream stream(printable(words));
  for (std::string word; stream >> word;) {
    const bool fits = line.size() + 1 + word.size() <= static_cast<std::size_t>(columns);
    if (!line.empty() && !fits) lines += std::exchange(line, "") + "\n";
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? "" : lines + line + "\n";
}

int width_of_terminal() {
  int columns = 0;
  const auto wanted = env::get("COLUMNS").value_or("");
  std::from_chars(wanted.data(), wanted.data() + wanted.size(), columns);
  winsize size = {};
  if (columns <= 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns > 0 ? columns : TerminalOptions().columns;
}

}  // namespace

std::string plot_curves(const std::vector<RunRecord>& runs, const ReportOptions& options,
                        const TerminalOptions& terminal) {
  if (runs.empty()) throw ConfigError("report", {.what = "no run to draw"});
  constexpr int kMostColumns = 500, kMostRows = 200;
  const auto all = compared(runs);
  const TerminalOptions usable{.columns = std::clamp(terminal.columns, 30, kMostColumns),
                               .rows = std::clamp(terminal.rows, 3, kMostRows),
                               .colour = terminal.colour};
  std::string text;
  if (!options.title.empty()) text += printable(options.title) + "\n\n";
  const auto names = selected_names(all, options.metrics);
  for (const auto& name : names) text += plot(all, name, usable);
  if (names.empty()) text += "nothing was logged in these runs\n";
  return options.notes ? text + in_lines(note_on_seeds(all), usable.columns) : text;
}

TerminalOptions standard_output() {
  const bool colour = ::isatty(STDOUT_FILENO) == 1 && env::get("NO_COLOR").value_or("").empty();
  return {.columns = width_of_terminal(), .colour = colour};
}

}  // namespace lockstep
