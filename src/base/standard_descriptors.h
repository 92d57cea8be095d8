// Descriptors 0, 1 and 2 of a process that was started without them.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep {

/// Opens /dev/null at each of descriptors 0, 1 and 2 that is closed: else the next socket or file would get
/// its number, and with it all that is meant for stdout or stderr. Called when the library is loaded, and at
/// the entries of the library for programs that close them later.
LOCKSTEP_API void occupy_standard_descriptors();

}  // namespace lockstep
