// Short forms for this module's errors.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep::metrics::detail {

/// @throws ConfigError: an option, such as "Accuracy: num_classes", is not usable
[[noreturn]] void refuse_option(std::string what, std::string expected, std::string got);

/// The same if `allowed` is false, where `value` was given.
void require_option(bool allowed, const std::string& what, double value, const std::string& expected);

/// @throws DataError: an argument of update(), such as "Accuracy: target", is not usable
[[noreturn]] void refuse_input(std::string what, std::string expected, std::string got);

/// The same if `allowed` is false, where `value` was given.
void require_input(bool allowed, const std::string& what, const at::Tensor& value,
                   const std::string& expected);

/// "Float [2, 3]"
std::string text_of(const at::Tensor& tensor);

}  // namespace lockstep::metrics::detail
