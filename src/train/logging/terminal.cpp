#include "train/logging/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include <lockstep/base/env.h>

namespace lockstep::detail {
namespace {

constexpr std::size_t kDefaultColumns = 80;
constexpr char kEscape = '\033';

std::size_t drawn_lines = 0;  // by this process, at the end of standard output; the cursor is in the last

std::string taken(std::size_t lines) {
  if (lines == 0) return {};
  std::string text = "\r\033[K";
  for (std::size_t line = 1; line < lines; ++line) text += "\033[1A\033[K";
  return text;
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Bytes of the colour sequence, or of the character, that `text` begins with.
std::size_t first_bytes(std::string_view text) {
  if (text.front() == kEscape) {
    const auto end = text.find('m');
    return end == std::string_view::npos ? text.size() : end + 1;
  }
  std::size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) ++bytes;
  return bytes;
}

}  // namespace

void print_line(std::string_view text) {
  put(taken(std::exchange(drawn_lines, 0)).append(text).append("\n"));
}

void draw_block(std::span<const std::string> lines) {
  auto text = taken(drawn_lines);
  const auto columns = terminal_columns() - 1;  // a full line would wrap
  for (std::size_t line = 0; line < lines.size(); ++line)
    text.append(line == 0 ? "" : "\n").append(cut_to(lines[line], columns));
  drawn_lines = lines.size();
  put(text);
}

void erase_block() {
  if (drawn_lines > 0) put(taken(std::exchange(drawn_lines, 0)));
}

bool can_draw() { return isatty(STDOUT_FILENO) == 1 && env::get("TERM") != "dumb"; }

std::size_t terminal_columns() {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? size.ws_col : kDefaultColumns;
}

std::string cut_to(std::string_view text, std::size_t columns) {
  std::string cut;
  for (std::size_t filled = 0; !text.empty();) {
    const auto bytes = first_bytes(text);
    const bool is_colour = text.front() == kEscape;
    if (is_colour || filled < columns) cut.append(text.substr(0, bytes));
    if (!is_colour) ++filled;
    text.remove_prefix(bytes);
  }
  return cut;
}

}  // namespace lockstep::detail
