// Text from outside that is shown on terminals.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// `text` with control characters replaced, which a terminal would obey, and of which zero would end a
/// message.
LOCKSTEP_API std::string printable(std::string_view text);

}  // namespace lockstep::detail
