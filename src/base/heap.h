// What malloc keeps of memory that was freed. Nothing where it is not glibc's.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep {

/// For a process that trains: each step asks for the same blocks again, and what is freed between, up to 1
/// GiB, stays for the next one. By itself malloc gives what is free at the end of the heap back to the
/// system, but for 64 MiB at most, and the system clears each page anew when it is asked for again. Nothing
/// where the environment tells malloc what to do (MALLOC_*_, GLIBC_TUNABLES), or give_back_what_is_freed()
/// was called.
LOCKSTEP_API void keep_what_is_freed();

/// For a process that has no memory to spare: large blocks go back to the system when they are freed, for the
/// rest of the process. malloc would keep those of up to 32 MiB, for speed, and the small ones among them
/// would hold the heap at its largest size.
LOCKSTEP_API void give_back_what_is_freed();

}  // namespace lockstep
