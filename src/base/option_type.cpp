// The types of options that need no specialisation by users.
#include <lockstep/base/option_type.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <lockstep/base/enum_option.h>
#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep {
namespace {

template <class Int>
Expected<Int> parse_int(std::string_view text) {
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

std::string one_of(std::span<const std::string> names) { return "one of " + joined(names); }

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

Expected<double> OptionType<double>::parse(std::string_view text) {
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

}  // namespace lockstep
