// Short forms for this module's errors.
#pragma once

#include <span>
#include <string>

#include <lockstep/base/error.h>

namespace lockstep::detail {

/// @throws ConfigError of module optim
[[noreturn]] void refuse(std::string what, std::string expected, std::string got, std::string hint = "");

/// @throws ConfigError if `allowed` is false: `field` (such as "AdamW.lr") is `value`, where `expected` is
/// wanted
void require(bool allowed, const std::string& field, double value, const std::string& expected);

/// `a, b, c, ... (12)`: the first few of many names, for an error's text.
std::string some_of(std::span<const std::string> names);

}  // namespace lockstep::detail
