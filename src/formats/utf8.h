// Whether bytes are text.
#pragma once

#include <string_view>

namespace lockstep::detail {

/// Whether `bytes` are UTF-8 as the Unicode standard defines it (its table 3-7): no overlong forms, no
/// surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace lockstep::detail
