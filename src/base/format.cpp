#include "base/format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {

std::string number_text(double number) {
  return std::isnan(number) ? "nan" : fmt::format("{}", number);  // fmt would print the sign of a NaN
}

std::string two_digits(double number) { return fmt::format("{:.2f}", number); }

std::string joined(std::span<const std::string> words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words.begin(), words.end(), separator));
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string upper_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return result;
}

std::string memory_text(std::int64_t bytes) {
  constexpr std::array kByteUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kByteUnits.size(); ++unit) value /= 1024;
  if (unit == 0) return std::to_string(bytes) + " B";
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kByteUnits[unit]);
}

}  // namespace lockstep

namespace lockstep::detail {

ErrorParts unreadable_file(const std::filesystem::path& file, const std::string& reason) {
  const bool begins_with_tilde = file.string().starts_with('~');
  return {.what = "'" + file.string() + "' cannot be read",
          .got = reason,
          .hint = begins_with_tilde ? "a ~ is the home folder only where a shell reads it" : ""};
}

}  // namespace lockstep::detail
