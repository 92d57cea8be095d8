// Whether a text can be the name or address of a host at all.
#pragma once

#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// What errors say of a host that is none.
inline constexpr const char* kHostForm = "a host name or address, without scheme and port";

/// Whether a resolver may know `host`: an address of IPv6, without brackets, or a name of letters, digits,
/// `-`,
/// `_`, `.` and bytes beyond ASCII that does not begin with `-`. False for `tcp://head`, `head:29500` and
/// `a, b`, for which one would ask in vain until the deadline. Sources: RFC 1123, section 2.1; RFC 4291.
LOCKSTEP_API bool may_be_host(std::string_view host);

}  // namespace lockstep
