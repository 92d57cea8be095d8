// Standard output, shared by lines that stay and a block at its end that is drawn anew.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Prints a line on standard output, above the block where one is drawn.
LOCKSTEP_API void print_line(std::string_view text);

/// Draws the lines in place of those drawn before, each cut to the terminal's width. For terminals only.
LOCKSTEP_API void draw_block(std::span<const std::string> lines);

/// Takes the block away, if there is one.
LOCKSTEP_API void erase_block();

/// Whether standard output is a terminal that a block can be drawn on.
LOCKSTEP_API bool can_draw();

/// Columns of the terminal; 80 where it does not say.
LOCKSTEP_API std::size_t terminal_columns();

/// The beginning of `text` that fills no more than `columns`; sequences for colours take none.
LOCKSTEP_API std::string cut_to(std::string_view text, std::size_t columns);

}  // namespace lockstep::detail
