// Numbers, words and errno values as text for messages and files, and the error for a file that
// cannot be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// The shortest text that reads back as `number`: `1`, `0.1`, `1e-08`.
LOCKSTEP_API std::string number_text(double number);

/// 2^63, the least positive double that is too large for std::int64_t.
inline constexpr double kBeyondInt64 = 0x1p63;

/// `number` with two digits behind the point: `1.50`.
LOCKSTEP_API std::string two_digits(double number);

/// A number of bytes in the unit that suits it: `512 B`, `1.50 MiB`, `118 GiB`.
LOCKSTEP_API std::string memory_text(std::int64_t bytes);

/// The words with `separator` between them: `a, b, c`.
LOCKSTEP_API std::string joined(std::span<const std::string> words, std::string_view separator = ", ");

/// `text` with its ASCII letters in lower or upper case.
std::string lower_case(std::string_view text);
LOCKSTEP_API std::string upper_case(std::string_view text);

}  // namespace lockstep

namespace lockstep::detail {

/// `text` without `blanks` at both ends; the empty end of a text that has nothing but blanks.
inline std::string_view trimmed(std::string_view text, std::string_view blanks = " ") {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return text.substr(text.size());
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// As strerror, but thread-safe.
inline std::string system_error_text(int error_number) {
  return std::generic_category().message(error_number);
}

/// "'FILE' cannot be read; got REASON": for IoError, or for DataError where the file is one of a data set.
/// `reason` is system_error_text(errno), or what is there instead of a file; empty where it is unknown.
LOCKSTEP_API ErrorParts unreadable_file(const std::filesystem::path& file, const std::string& reason = {});

}  // namespace lockstep::detail
