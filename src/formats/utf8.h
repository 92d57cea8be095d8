// Whether bytes are text.
#pragma once

#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Whether `bytes` are UTF-8 as the Unicode standard defines it (its table 3-7): no overlong forms, no
/// surrogates, nothing above U+10FFFF.
LOCKSTEP_API bool is_utf8(std::string_view bytes);

}  // namespace lockstep::detail
