#include "deepspeed/hjson_cursor.h"

#include <lockstep/base/error.h>

namespace lockstep::deepspeed {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string place_in(const std::string& name, Place place) {
  return name + ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
}

HjsonCursor::HjsonCursor(std::string_view text, const std::string& name) : rest_(text), name_(name) {
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

char HjsonCursor::take() {
  const char byte = rest_.front();
  rest_.remove_prefix(1);
  if (byte == '\n') {
    place_ = {place_.line + 1, 1};
  } else if (!continues_character(peek())) {
    ++place_.column;
  }
  return byte;
}

bool HjsonCursor::take_if(char wanted) {
  if (at_end() || peek() != wanted) return false;
  take();
  return true;
}

bool HjsonCursor::skip() {
  const int line = place_.line;
  while (!at_end()) {
    const char next = peek();
    if (next == ' ' || next == '\t' || next == '\n' || next == '\r') {
      take();
    } else if (next == '#' || starts_with("//")) {
      skip_line();
    } else if (starts_with("/*")) {
      skip_block();
    } else {
      break;
    }
  }
  return place_.line != line;
}

void HjsonCursor::skip_line() {
  while (!at_end() && peek() != '\n') take();
}

void HjsonCursor::skip_block() {
  const auto start = place_;
  while (!starts_with("*/")) {
    if (at_end()) refuse_at(start, "a comment has no end", "*/");
    take();
  }
  take();
  take();
}

std::string HjsonCursor::next_shown() const {
  if (at_end()) return "the end of the file";
  const auto byte = static_cast<unsigned char>(peek());
  if (byte == '\n' || byte == '\r') return "the end of the line";
  return byte > 0x20 && byte < 0x7f ? "'" + std::string(1, peek()) + "'" : "another character";
}

void HjsonCursor::refuse(const std::string& what, const std::string& expected) const {
  throw ConfigError("deepspeed", {.what = what,
                                  .expected = expected,
                                  .got = expected.empty() ? "" : next_shown(),
                                  .where = place_in(name_, place_),
                                  .hint = {}});
}

void HjsonCursor::refuse_at(Place place, const std::string& what, const std::string& expected) const {
  throw ConfigError(
      "deepspeed",
      {.what = what, .expected = expected, .got = {}, .where = place_in(name_, place), .hint = {}});
}

}  // namespace lockstep::deepspeed
