#include <lockstep/base/option_codec.h>

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>

#include "base/format.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kPlainFirst =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+";
constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+@=";

// The character of two or three bytes at the start of UTF-8 text that readers of YAML refuse or take for the
// end of a line: C1 controls, U+2028, U+2029, U+FEFF, U+FFFE, U+FFFF; 0 for any other.
char32_t unprintable_at_start(std::string_view text) {
  const auto byte = [&](std::size_t i) -> char32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  if (byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0) return byte(1);
  if ((byte(0) & 0xf0) != 0xe0 || (byte(1) & 0xc0) != 0x80 || (byte(2) & 0xc0) != 0x80) return 0;
  const char32_t code = (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  constexpr std::array<char32_t, 5> kThreeBytes{0x2028, 0x2029, 0xfeff, 0xfffe, 0xffff};
  return std::ranges::find(kThreeBytes, code) != kThreeBytes.end() ? code : 0;
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const char c = text.front();
    std::size_t length = 1;
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else if (const auto code = unprintable_at_start(text)) {
      result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
      length = code < 0x100 ? 2 : 3;
    } else {
      result += c;
    }
    text.remove_prefix(length);
  }
  return result + '"';
}

bool is_word_for_null(std::string_view text) {
  const auto word = lower_case(text);
  return word == "null" || word == "none" || word == "~";
}

bool looks_like_another_type(std::string_view text) {
  return OptionType<bool>::parse(text) || text.find_first_of("0123456789.-+") == 0;
}

bool is_plain(std::string_view text) {
  if (text.empty() || kPlainFirst.find(text.front()) == std::string_view::npos) return false;
  if (text == "-" || text.starts_with("---") || text.starts_with("...")) return false;
  return text.find_first_not_of(kPlain) == std::string_view::npos && !is_word_for_null(text);
}

std::string with_range(std::string accepted, const OptionRange& range) {
  if (!range.names.empty()) return one_of(range.names);
  return range.text.empty() ? accepted : accepted + " " + range.text;
}

// A list as it was given, and no text.
std::string shown_value(const OptionText& text) {
  const bool is_list = text.kind == OptionText::Kind::kScalar && !text.quoted && text.text.starts_with('[') &&
                       text.text.ends_with(']');
  const auto value = shown(text);
  return is_list ? value.substr(1, value.size() - 2) : value;
}

OptionText item_of(const OptionText& list, std::string_view text) {
  return {.text = std::string(detail::trimmed(text)),
          .quoted = list.quoted,
          .line = list.line,
          .column = list.column};
}

}  // namespace

bool means_null(const OptionText& text) {
  if (text.kind == OptionText::Kind::kNull) return true;
  return text.kind == OptionText::Kind::kScalar && !text.quoted && is_word_for_null(text.text);
}

std::vector<OptionText> items_of(const OptionText& text) {
  if (text.kind == OptionText::Kind::kList) return text.items;
  std::vector<OptionText> items;
  std::string_view rest = text.text;
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty()) return items;
  for (auto comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
    items.push_back(item_of(text, rest.substr(0, comma)));
    rest.remove_prefix(comma + 1);
  }
  items.push_back(item_of(text, rest));
  return items;
}

std::optional<OptionText> joined(const OptionText& text) {
  const auto is_scalar = [](const OptionText& item) { return item.kind == OptionText::Kind::kScalar; };
  if (text.kind != OptionText::Kind::kList || !std::ranges::all_of(text.items, is_scalar))
    return std::nullopt;
  OptionText list{.text = "[", .line = text.line, .column = text.column};
  for (const auto& item : text.items) list.text += (list.text.size() > 1 ? ", " : "") + item.text;
  list.text += "]";
  return list;
}

std::string yaml_scalar(std::string_view text, bool is_text) {
  const bool plain = is_plain(text) && !(is_text && looks_like_another_type(text));
  return plain ? std::string(text) : quoted(text);
}

OptionFailure refusal(const OptionText& text, std::string expected, const OptionRange& range) {
  return {with_range(std::move(expected), range), shown_value(text), text.line, text.column};
}

OptionFailure refusal(std::string got, std::string expected, const OptionRange& range) {
  return {with_range(std::move(expected), range), std::move(got)};
}

std::string spelled_as_in(const OptionRange& range, const std::string& text) {
  const auto name = std::ranges::find_if(
      range.names, [&](const std::string& candidate) { return same_name(candidate, text); });
  return name == range.names.end() ? text : *name;
}

OptionTypeInfo restricted(OptionTypeInfo info, const OptionRange& range) {
  if (range.names.empty()) return info;
  info.names = range.names;
  constexpr std::string_view kText = "text";
  for (auto* words : {&info.type, &info.accepted}) {
    const auto at = words->find(kText);
    if (at != std::string::npos)
      words->replace(at, kText.size(), words == &info.type ? "name" : one_of(info.names));
  }
  return info;
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

std::string printed(std::chrono::milliseconds duration) {
  return OptionType<std::chrono::milliseconds>::print(duration);
}

}  // namespace

OptionRange at_least(double low) { return {.low = low, .text = ">= " + number_text(low)}; }

OptionRange at_least(std::chrono::milliseconds low) {
  return {.low = static_cast<double>(low.count()), .text = ">= " + printed(low)};
}

OptionRange more_than(double low) { return {.low = low, .above_low = true, .text = "> " + number_text(low)}; }

OptionRange more_than(std::chrono::milliseconds low) {
  return {.low = static_cast<double>(low.count()), .above_low = true, .text = "> " + printed(low)};
}

OptionRange between(double low, double high) {
  return {.low = low, .high = high, .text = number_text(low) + ".." + number_text(high)};
}

OptionRange one_of(std::vector<std::string> names) {
  if (names.empty()) {
    throw ConfigError("options",
                      {.what = "one_of() of an option", .expected = "at least one name", .got = "none"});
  }
  return {.names = std::move(names)};
}

namespace {

constexpr std::size_t kLongestShown = 100;

// Terminals would obey such characters, and a message would end at the first that is zero.
std::string without_controls(std::string text) {
  std::ranges::replace_if(
      text, [](char letter) { return std::iscntrl(static_cast<unsigned char>(letter)) != 0; }, '?');
  return text;
}

}  // namespace

std::string shown(const OptionText& text) {
  switch (text.kind) {
    case OptionText::Kind::kNull:
      return "null";
    case OptionText::Kind::kList:
      return "a list";
    case OptionText::Kind::kMap:
      return "a map";
    case OptionText::Kind::kScalar:
      break;
  }
  if (text.text.size() <= kLongestShown) return '"' + without_controls(text.text) + '"';
  return '"' + without_controls(text.text.substr(0, kLongestShown)) + "...\"";
}

std::string one_line(const OptionText& text) {
  if (text.kind == OptionText::Kind::kScalar) return text.text;
  if (text.kind == OptionText::Kind::kNull) return "null";
  const bool is_map = text.kind == OptionText::Kind::kMap;
  std::string line;
  for (std::size_t i = 0; i < text.items.size(); ++i) {
    if (i > 0) line += ", ";
    if (is_map) line += text.names[i].text + ": ";
    line += one_line(text.items[i]);
  }
  return (is_map ? "{" : "[") + line + (is_map ? "}" : "]");
}

namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

void add_values(const std::string& key, const OptionText& text, Values& values) {
  const auto is_map = [](const OptionText& item) { return item.kind == OptionText::Kind::kMap; };
  const bool is_whole = is_map(text) ? text.items.empty() : std::ranges::none_of(text.items, is_map);
  if (is_whole) {
    values.emplace_back(key, one_line(text));
    return;
  }
  for (std::size_t i = 0; i < text.items.size(); ++i)
    add_values(is_map(text) ? key + "." + text.names[i].text : key + "[" + std::to_string(i) + "]",
               text.items[i], values);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> single_values(const Assignment& assignment) {
  Values values;
  add_values(assignment.key, assignment.value, values);
  return values;
}

bool Source::same_origin(const Source& other) const {
  return kind == other.kind && (kind != Kind::kYaml || name == other.name);
}

std::string shown(const Source& source) {
  switch (source.kind) {
    case Source::Kind::kFlag:
      return "flag " + source.name;
    case Source::Kind::kEnvironment:
      return "environment variable " + source.name;
    case Source::Kind::kYaml:
      break;
    case Source::Kind::kCode:
      return "a value set in code";
  }
  if (source.line == 0) return source.name;
  return source.name + ":" + std::to_string(source.line) + ":" + std::to_string(source.column);
}

}  // namespace lockstep
