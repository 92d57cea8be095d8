// Standard output, shared by lines that stay and a block below them that is redrawn.
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

/// Erases the block, if there is one.
LOCKSTEP_API void erase_block();

/// Whether standard output is a terminal that a block can be drawn on.
LOCKSTEP_API bool can_draw();

/// The columns of the terminal; 80 where they are unknown.
LOCKSTEP_API std::size_t terminal_columns();

/// The beginning of `text` that fills at most `columns`; colour sequences fill none.
LOCKSTEP_API std::string cut_to(std::string_view text, std::size_t columns);

}  // namespace lockstep::detail
