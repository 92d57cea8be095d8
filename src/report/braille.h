// A drawing of dots for a terminal: each character has two by four of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Dots in Braille characters. Dot (0, 0) is at the left end of the lowest line.
class LOCKSTEP_API BrailleCanvas {
 public:
  BrailleCanvas(int columns, int rows);

  int width() const { return 2 * columns_; }  ///< dots
  int height() const { return 4 * rows_; }    ///< dots

  /// The character around a dot takes the colour of what was drawn there last.
  void draw_line(int x0, int y0, int x1, int y1, int colour);

  /// Line `row`, counted from the top, in UTF-8 without its end. With `escapes`, colours are ANSI's 256.
  std::string line(int row, bool escapes) const;

 private:
  void set(int x, int y, int colour);

  struct Character {
    unsigned char dots = 0;
    int colour = -1;
  };

  int columns_;
  int rows_;
  std::vector<Character> characters_;
};

}  // namespace lockstep::detail
