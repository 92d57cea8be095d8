// Text out of a file, for messages.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::detail {

/// `text` in quotes, as far as it fits in a message, with what a terminal cannot show replaced.
std::string in_quotes(std::string_view text);

}  // namespace lockstep::detail
