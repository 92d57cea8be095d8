// Text out of a file, for messages.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// `text` with what a terminal would not show, but obey, replaced.
LOCKSTEP_API std::string printable(std::string_view text);

/// `text` in quotes, as far as it fits in a message, with what a terminal cannot show replaced.
LOCKSTEP_API std::string in_quotes(std::string_view text);

}  // namespace lockstep::detail
