// Numbers and words as text, for messages and files.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// The shortest text that reads back as `number`: `1`, `0.1`, `1e-08`.
LOCKSTEP_API std::string number_text(double number);

/// With two digits behind the point: `1.50`.
LOCKSTEP_API std::string two_digits(double number);

/// `a, b, c`
LOCKSTEP_API std::string joined(std::span<const std::string> words, std::string_view separator = ", ");

/// ASCII only.
std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);

}  // namespace lockstep
