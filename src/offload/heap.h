// What the heap keeps of memory that was freed.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep::offload {

/// Large blocks go back to the system when they are freed, for the rest of the process. malloc would keep
/// those of up to 32 MiB, for speed, and the small ones among them would hold the heap at its largest size.
/// Nothing where malloc is not glibc's.
LOCKSTEP_API void give_back_what_is_freed();

}  // namespace lockstep::offload
