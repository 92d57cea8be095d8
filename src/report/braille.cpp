#include "report/braille.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

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
