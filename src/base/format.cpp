#include "base/format.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <new>

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

}  // namespace lockstep

namespace lockstep::detail {

ErrorParts unreadable_file(const std::filesystem::path& file, const std::string& reason) {
  return {.what = "'" + file.string() + "' cannot be read", .got = reason};
}

std::string failure_text(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return error.what();
  return "the system has not enough memory for this process (" + std::string(error.what()) +
         "); use a smaller batch, or a strategy that shards or offloads its state";
}

}  // namespace lockstep::detail
