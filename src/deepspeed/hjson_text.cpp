#include "deepspeed/hjson_text.h"

#include <cstdint>
#include <string_view>

namespace lockstep::deepspeed {
namespace {

constexpr std::string_view kEndsBare = ",:[]{}\"'#\n\r";
constexpr std::string_view kEscaped = "\"\\/'bfnrt";
constexpr std::string_view kMeant = "\"\\/'\b\f\n\r\t";

std::uint32_t take_four_digits(HjsonCursor& cursor) {
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const char digit = static_cast<char>(cursor.peek() | 0x20);
    const auto value = kDigits.find(cursor.peek() >= 'A' ? digit : cursor.peek());
    if (value == std::string_view::npos) cursor.refuse("\\u in a text", "four hexadecimal digits");
    code = code * 16 + static_cast<std::uint32_t>(value);
    cursor.take();
  }
  return code;
}

std::string utf8(std::uint32_t code) {
  const auto byte = [](std::uint32_t bits) { return static_cast<char>(bits); };
  const auto tail = [&](int shift) { return byte(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {byte(0xe0 | code >> 12), tail(6), tail(0)};
  return {byte(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

/// What follows `\u`: a character, or the two halves of one.
std::string take_unicode(HjsonCursor& cursor) {
  const auto start = cursor.place();
  const auto code = take_four_digits(cursor);
  if (code < 0xd800 || code > 0xdfff) return utf8(code);
  if (code > 0xdbff || !cursor.starts_with("\\u")) cursor.refuse_at(start, "half a character in a text");
  cursor.take();
  cursor.take();
  const auto low = take_four_digits(cursor);
  if (low < 0xdc00 || low > 0xdfff) cursor.refuse_at(start, "half a character in a text");
  return utf8(0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff));
}

std::string take_escape(HjsonCursor& cursor) {
  if (cursor.take_if('u')) return take_unicode(cursor);
  const auto which = cursor.at_end() ? std::string_view::npos : kEscaped.find(cursor.peek());
  if (which == std::string_view::npos)
    cursor.refuse("an escape in a text", R"(one of \" \\ \/ \b \f \n \r \t \uXXXX)");
  cursor.take();
  return {kMeant[which]};
}

}  // namespace

std::string take_quoted(HjsonCursor& cursor) {
  const auto start = cursor.place();
  const char mark = cursor.take();
  std::string text;
  while (!cursor.take_if(mark)) {
    if (cursor.at_end() || cursor.peek() == '\n') cursor.refuse_at(start, "a text has no end on its line");
    if (static_cast<unsigned char>(cursor.peek()) < 0x20 && cursor.peek() != '\t')
      cursor.refuse("a control character in a text");
    const char next = cursor.take();
    text += next == '\\' ? take_escape(cursor) : std::string(1, next);
  }
  return text;
}

std::string take_bare(HjsonCursor& cursor) {
  std::string text;
  while (!cursor.at_end() && kEndsBare.find(cursor.peek()) == std::string_view::npos &&
         !cursor.starts_with("//") && !cursor.starts_with("/*")) {
    if (static_cast<unsigned char>(cursor.peek()) < 0x20 && cursor.peek() != '\t') break;
    text += cursor.take();
  }
  text.erase(text.find_last_not_of(" \t") + 1);
  return text;
}

}  // namespace lockstep::deepspeed
