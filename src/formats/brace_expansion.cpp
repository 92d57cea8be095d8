#include <lockstep/formats/brace_expansion.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kMaxMeanBytes = 512;  // of a name
constexpr int kMaxDepth = 16;

using Names = std::vector<std::string>;

/// Where the brace that opens at the beginning closes, or npos.
std::size_t closing(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

/// `text` at the commas that stand in no brace.
std::vector<std::string_view> alternatives(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}') --depth;
    if (text[i] != ',' || depth != 0) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::optional<std::int32_t> whole_number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_padded(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0';
}

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The place of a text that is one letter.
std::optional<std::int32_t> letter(std::string_view text) {
  const auto place = text.size() == 1 ? kLetters.find(text[0]) : std::string_view::npos;
  if (place == std::string_view::npos) return std::nullopt;
  return static_cast<std::int32_t>(place);
}

/// Of numbers, or of letters by their places.
struct Range {
  std::int64_t first;
  std::int64_t last;
  std::int64_t step;  // towards `last`, 1 or more
  std::size_t width;  // of numbers, with sign; 0: not padded
  bool is_of_letters;

  std::size_t size() const { return static_cast<std::size_t>(std::abs(last - first) / step) + 1; }
  std::string name(std::size_t i) const {
    const auto value = first + (last < first ? -1 : 1) * step * static_cast<std::int64_t>(i);
    if (is_of_letters) return {kLetters[static_cast<std::size_t>(value)]};
    std::string digits = std::to_string(std::abs(value));
    const std::string sign = value < 0 ? "-" : "";
    const auto length = digits.size() + sign.size();
    return sign + std::string(length < width ? width - length : 0, '0') + digits;
  }
};

/// `first..last` or `first..last..step`.
std::optional<Range> range(std::string_view text) {
  const auto dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const auto first = text.substr(0, dots);
  auto last = text.substr(dots + 2);
  std::optional<std::int32_t> step = 1;
  if (const auto more = last.find(".."); more != std::string_view::npos) {
    step = whole_number(last.substr(more + 2));
    last = last.substr(0, more);
  }
  const bool is_of_letters = letter(first) && letter(last);
  const auto from = is_of_letters ? letter(first) : whole_number(first);
  const auto to = is_of_letters ? letter(last) : whole_number(last);
  if (!from || !to || !step) return std::nullopt;
  const bool padded = is_padded(first) || is_padded(last);
  return Range{.first = *from,
               .last = *to,
               .step = std::max<std::int64_t>(std::abs(std::int64_t{*step}), 1),
               .width = padded ? std::max(first.size(), last.size()) : 0,
               .is_of_letters = is_of_letters};
}

std::size_t bytes_of(const Names& names) {
  std::size_t bytes = 0;
  for (const auto& name : names) bytes += name.size() + sizeof(std::string);
  return bytes;
}

class Expansion {
 public:
  explicit Expansion(std::size_t max_names) : max_names_(max_names) {}

  Expected<Names> expand(std::string_view text, int depth = 0) const {
    if (depth > kMaxDepth) return Unexpected{"braces within braces, more than 16 deep"};
    Names names{""};
    while (!text.empty()) {
      auto next = take(text, depth);
      if (!next) return next;
      next = product(names, *next);
      if (!next) return next;
      names = std::move(*next);
    }
    return names;
  }

 private:
  /// Takes a group in braces, or the text before one, from the front of `text`.
  Expected<Names> take(std::string_view& text, int depth) const {
    const auto open = text.find('{');
    if (open != 0) {
      const std::string plain(text.substr(0, open));
      text.remove_prefix(plain.size());
      return Names{plain};
    }
    const auto close = closing(text);
    if (close == std::string_view::npos) return Unexpected{"a brace that is not closed"};
    const auto inside = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
    return group(inside, depth + 1);
  }

  /// What the text between two braces stands for.
  Expected<Names> group(std::string_view inside, int depth) const {
    if (const auto all = range(inside)) return names_of(*all);
    const auto parts = alternatives(inside);
    if (parts.size() == 1) {
      auto names = expand(inside, depth);
      if (!names) return names;
      for (auto& name : *names) name = "{" + name + "}";
      return names;
    }
    Names all;
    for (const auto part : parts) {
      auto names = expand(part, depth);
      if (!names) return names;
      if (all.size() + names->size() > max_names_) return too_many();
      all.insert(all.end(), std::make_move_iterator(names->begin()), std::make_move_iterator(names->end()));
    }
    return all;
  }

  Expected<Names> names_of(const Range& range) const {
    if (range.size() > max_names_) return too_many();
    Names names;
    for (std::size_t i = 0; i < range.size(); ++i) names.push_back(range.name(i));
    return names;
  }

  /// Each of `heads` before each of `tails`.
  Expected<Names> product(const Names& heads, const Names& tails) const {
    const auto bytes = bytes_of(heads) * tails.size() + bytes_of(tails) * heads.size();
    if (heads.size() * tails.size() > max_names_ || bytes > max_names_ * kMaxMeanBytes) return too_many();
    Names joined;
    joined.reserve(heads.size() * tails.size());
    for (const auto& head : heads) {
      for (const auto& tail : tails) joined.push_back(head + tail);
    }
    return joined;
  }

  Unexpected<std::string> too_many() const { return {"more than " + std::to_string(max_names_) + " names"}; }

  std::size_t max_names_;
};

}  // namespace

Expected<std::vector<std::string>> expand_braces(std::string_view pattern, std::size_t max_names) {
  return Expansion(max_names).expand(pattern);
}

}  // namespace lockstep
