// The types of options that lockstep itself defines.
#include <lockstep/base/option_type.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep {
namespace {

// Python's further spellings of numbers, +7 and 1_000, as 7 and 1000.
std::string without_signs_of_python(std::string_view text) {
  const auto is_digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  std::string number;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_plus = i == 0 && text[i] == '+' && (is_digit(1) || text.substr(1).starts_with('.'));
    const bool is_between = text[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1);
    if (!is_plus && !is_between) number += text[i];
  }
  return number;
}

template <class Int>
Expected<Int> parse_int(std::string_view given) {
  const auto text = without_signs_of_python(given);
  Int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc::result_out_of_range) {
    return Unexpected{"an integer from " + std::to_string(std::numeric_limits<Int>::min()) + " to " +
                      std::to_string(std::numeric_limits<Int>::max())};
  }
  if (status != std::errc{} || end != text.data() + text.size())
    return Unexpected{OptionType<Int>::accepted()};
  return value;
}

}  // namespace

namespace detail {

bool same_name(std::string_view a, std::string_view b) { return lower_case(a) == lower_case(b); }

std::string one_of(std::span<const std::string> names) { return "one of " + lockstep::joined(names); }

void refuse_name(std::string_view text, const std::string& accepted) {
  throw ConfigError("options", {.what = "an option has no value of that name",
                                .expected = accepted,
                                .got = "'" + std::string(text) + "'"});
}

}  // namespace detail

Expected<bool> OptionType<bool>::parse(std::string_view text) {
  const auto word = lower_case(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return Unexpected{accepted()};
}
std::string OptionType<bool>::print(const bool& value) { return value ? "true" : "false"; }
std::string OptionType<bool>::accepted() { return "true or false"; }
std::string OptionType<bool>::type() { return "bool"; }

Expected<int> OptionType<int>::parse(std::string_view text) { return parse_int<int>(text); }
std::string OptionType<int>::print(const int& value) { return std::to_string(value); }
std::string OptionType<int>::accepted() { return "an integer"; }
std::string OptionType<int>::type() { return "int"; }

Expected<std::int64_t> OptionType<std::int64_t>::parse(std::string_view text) {
  return parse_int<std::int64_t>(text);
}
std::string OptionType<std::int64_t>::print(const std::int64_t& value) { return std::to_string(value); }
std::string OptionType<std::int64_t>::accepted() { return "an integer"; }
std::string OptionType<std::int64_t>::type() { return "int"; }

Expected<std::uint64_t> OptionType<std::uint64_t>::parse(std::string_view text) {
  return parse_int<std::uint64_t>(text);
}
std::string OptionType<std::uint64_t>::print(const std::uint64_t& value) { return std::to_string(value); }
std::string OptionType<std::uint64_t>::accepted() { return "an integer without sign"; }
std::string OptionType<std::uint64_t>::type() { return "uint"; }

Expected<double> OptionType<double>::parse(std::string_view given) {
  const auto text = without_signs_of_python(given);
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc{} && end == text.data() + text.size();
  if (!whole || !std::isfinite(value)) return Unexpected{accepted()};
  return value;
}
std::string OptionType<double>::print(const double& value) {
  const auto text = number_text(value);
  const bool looks_integer = text.find_first_not_of("-0123456789") == std::string::npos;
  return looks_integer ? text + ".0" : text;
}
std::string OptionType<double>::accepted() { return "a finite number"; }
std::string OptionType<double>::type() { return "float"; }

Expected<std::string> OptionType<std::string>::parse(std::string_view text) { return std::string(text); }
std::string OptionType<std::string>::print(const std::string& value) { return value; }
std::string OptionType<std::string>::accepted() { return "text"; }
std::string OptionType<std::string>::type() { return "text"; }

Expected<std::filesystem::path> OptionType<std::filesystem::path>::parse(std::string_view text) {
  return std::filesystem::path(text);
}
std::string OptionType<std::filesystem::path>::print(const std::filesystem::path& value) {
  return value.string();
}
std::string OptionType<std::filesystem::path>::accepted() { return "a path"; }
std::string OptionType<std::filesystem::path>::type() { return "path"; }

namespace {

using std::chrono::milliseconds;

struct Unit {
  std::string_view name;
  std::int64_t ms;
};
constexpr std::array<Unit, 5> kUnits{
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};
constexpr double kLongestMs = 1e15;  // 31,000 years: exact in a double, far from overflow

std::optional<double> number_at_start(std::string_view& text) {
  double value = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (status != std::errc{} || !std::isfinite(value)) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<milliseconds> from_ms(double ms) {
  if (std::abs(ms) > kLongestMs) return std::nullopt;
  return milliseconds(std::llround(ms));
}

std::optional<milliseconds> parse_with_unit(std::string_view text) {
  const auto number = number_at_start(text);
  if (!number) return std::nullopt;
  for (const auto& unit : kUnits) {
    if (text == unit.name) return from_ms(*number * static_cast<double>(unit.ms));
  }
  return std::nullopt;
}

// HH:MM:SS or DD:HH:MM:SS, as Lightning's max_time.
std::optional<milliseconds> parse_clock(std::string_view text) {
  std::vector<double> parts;
  while (const auto number = number_at_start(text)) {
    if (*number < 0) return std::nullopt;
    parts.push_back(*number);
    if (text.empty()) break;
    if (!text.starts_with(':')) return std::nullopt;
    text.remove_prefix(1);
  }
  if (!text.empty() || parts.size() < 3 || parts.size() > 4) return std::nullopt;
  double ms = 0;
  const std::size_t first_unit = 4 - parts.size();
  for (std::size_t i = 0; i < parts.size(); ++i)
    ms += parts[i] * static_cast<double>(kUnits[first_unit + i].ms);
  return from_ms(ms);
}

// Python's `1 day, 2:00:00`, which has days only where there are some.
std::optional<milliseconds> parse_days_and_clock(std::string_view text) {
  const auto days = number_at_start(text);
  if (!days || !(text.starts_with(" day, ") || text.starts_with(" days, "))) return std::nullopt;
  const auto rest = parse_clock(text.substr(text.find(',') + 2));
  if (!rest) return std::nullopt;
  return from_ms(*days * static_cast<double>(kUnits[0].ms) + static_cast<double>(rest->count()));
}

// `{days: 1, hours: 2}`: the arguments of Python's timedelta, but for microseconds.
std::optional<milliseconds> parse_parts(std::string_view text) {
  constexpr std::array<Unit, 6> kParts{{{"weeks", 604'800'000},
                                        {"days", 86'400'000},
                                        {"hours", 3'600'000},
                                        {"minutes", 60'000},
                                        {"seconds", 1'000},
                                        {"milliseconds", 1}}};
  double ms = 0;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const auto pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const auto colon = pair.find(':');
    if (colon == pair.npos) return std::nullopt;
    const auto part = std::ranges::find(kParts, detail::trimmed(pair.substr(0, colon)), &Unit::name);
    auto rest = detail::trimmed(pair.substr(colon + 1));
    const auto number = number_at_start(rest);
    if (part == kParts.end() || !number || !rest.empty()) return std::nullopt;
    ms += *number * static_cast<double>(part->ms);
  }
  return from_ms(ms);
}

std::optional<milliseconds> parse_duration(std::string_view text) {
  if (text.starts_with('{') && text.ends_with('}')) return parse_parts(text);
  if (text.find(" day") != text.npos) return parse_days_and_clock(text);
  return text.find(':') == text.npos ? parse_with_unit(text) : parse_clock(text);
}

}  // namespace

Expected<milliseconds> OptionType<milliseconds>::parse(std::string_view text) {
  const auto value = parse_duration(text);
  if (!value) return Unexpected{accepted()};
  return *value;
}

std::string OptionType<milliseconds>::print(const milliseconds& value) {
  if (value.count() == 0) return "0s";
  for (const auto& unit : kUnits) {
    if (value.count() % unit.ms == 0) return std::to_string(value.count() / unit.ms) + std::string(unit.name);
  }
  return std::to_string(value.count()) + "ms";
}

std::string OptionType<milliseconds>::accepted() {
  return "a duration such as 250ms, 30s, 5m, 1h or 00:30:00";
}
std::string OptionType<milliseconds>::type() { return "duration"; }

}  // namespace lockstep
