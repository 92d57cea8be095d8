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

/// require() that `value` is a finite number >= 0.
void require_not_negative(const std::string& field, double value);

/// require() that `value` lies in [0, 1].
void require_share(const std::string& field, double value);

/// `a, b, c, ... (12)`: the first few of many names, for an error's text.
std::string some_of(std::span<const std::string> names);

}  // namespace lockstep::detail
