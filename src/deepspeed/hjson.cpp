#include "deepspeed/hjson.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <lockstep/base/error.h>

#include "formats/file_text.h"

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

namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20;
constexpr int kDeepest = 64;

bool is_quotation_mark(char byte) { return byte == '"' || byte == '\''; }

bool is_number(std::string_view word) {
  const auto digits = [&] {
    const auto count = std::min(word.find_first_not_of("0123456789"), word.size());
    word.remove_prefix(count);
    return count > 0;
  };
  if (word.starts_with('-')) word.remove_prefix(1);
  if (!digits()) return false;
  if (word.starts_with('.')) {
    word.remove_prefix(1);
    if (!digits()) return false;
  }
  if (word.starts_with('e') || word.starts_with('E')) {
    word.remove_prefix(1);
    if (word.starts_with('+') || word.starts_with('-')) word.remove_prefix(1);
    if (!digits()) return false;
  }
  return word.empty();
}

Hjson::Kind kind_of_bare(std::string_view word) {
  if (word == "null") return Hjson::Kind::kNull;
  if (word == "true" || word == "false") return Hjson::Kind::kBool;
  return is_number(word) ? Hjson::Kind::kNumber : Hjson::Kind::kText;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : cursor_(text, name), name_(name) {}

  Hjson parse() {
    cursor_.skip();
    if (cursor_.peek() != '{') cursor_.refuse("the configuration is an object", "{");
    auto root = take_value(0);
    cursor_.skip();
    if (!cursor_.at_end()) cursor_.refuse("after the configuration", "the end of the file");
    return root;
  }

 private:
  Hjson take_value(int depth) {
    if (depth > kDeepest) cursor_.refuse("nested deeper than " + std::to_string(kDeepest));
    Hjson value{.place = cursor_.place()};
    if (cursor_.take_if('{')) {
      value.kind = Hjson::Kind::kObject;
      take_members(value.members, depth);
    } else if (cursor_.take_if('[')) {
      value.kind = Hjson::Kind::kArray;
      take_items(value.items, depth);
    } else if (is_quotation_mark(cursor_.peek())) {
      value.kind = Hjson::Kind::kText;
      value.text = take_quoted(cursor_);
    } else {
      take_word(value);
    }
    return value;
  }

  void take_word(Hjson& value) {
    value.text = take_bare(cursor_);
    if (value.text.empty()) cursor_.refuse("a value is missing", "a value");
    value.kind = kind_of_bare(value.text);
  }

  void take_members(std::vector<HjsonMember>& members, int depth) {
    while (!ends('}')) {
      HjsonMember member{.place = cursor_.place()};
      member.key = take_key();
      cursor_.skip();
      if (!cursor_.take_if(':'))
        cursor_.refuse("after key " + lockstep::detail::in_quotes(member.key), "':'");
      cursor_.skip();
      member.value = take_value(depth + 1);
      members.push_back(std::move(member));
      take_separator('}');
    }
    refuse_duplicates(members);
  }

  void take_items(std::vector<Hjson>& items, int depth) {
    while (!ends(']')) {
      items.push_back(take_value(depth + 1));
      take_separator(']');
    }
  }

  std::string take_key() {
    if (is_quotation_mark(cursor_.peek())) return take_quoted(cursor_);
    auto key = take_bare(cursor_);
    if (key.empty()) cursor_.refuse("a key is missing", "a key");
    return key;
  }

  bool ends(char close) {
    cursor_.skip();
    return cursor_.take_if(close);
  }

  void take_separator(char close) {
    const bool new_line = cursor_.skip();
    if (cursor_.take_if(',') || new_line || cursor_.peek() == close) return;
    cursor_.refuse("after a value", std::string("',' or '") + close + "'");
  }

  void refuse_duplicates(const std::vector<HjsonMember>& members) const {
    std::vector<const HjsonMember*> sorted;
    for (const auto& member : members) sorted.push_back(&member);
    std::ranges::stable_sort(sorted, {}, &HjsonMember::key);
    const auto twice = std::ranges::adjacent_find(sorted, {}, &HjsonMember::key);
    if (twice == sorted.end()) return;
    cursor_.refuse_at(twice[1]->place, "key " + lockstep::detail::in_quotes(twice[0]->key) +
                                           " is given twice, first at " + place_in(name_, twice[0]->place));
  }

  HjsonCursor cursor_;
  const std::string& name_;
};

}  // namespace

Hjson* Hjson::find(std::string_view key) {
  const auto found = std::ranges::find(members, key, &HjsonMember::key);
  return found == members.end() ? nullptr : &found->value;
}

Hjson parse_hjson(std::string_view text, const std::string& name) {
  if (text.size() > kMostBytes) HjsonCursor({}, name).refuse("the configuration is larger than 16 MiB");
  if (!lockstep::detail::is_utf8(text)) HjsonCursor({}, name).refuse("the configuration is no UTF-8");
  return Parser(text, name).parse();
}

}  // namespace lockstep::deepspeed
