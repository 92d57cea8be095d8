// What the operating system grants this process, and what the process leaves to it: descriptors, freed
// memory, time slices, the host's name, and what is done at the end.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep::detail {

inline std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Another text each time that the machine starts; empty where the kernel tells none. Source: random(4).
inline std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace lockstep::detail

namespace lockstep {

/// Sees to it that `more` descriptors can be opened beside those that are: raises the limit as far as that
/// takes and the system allows. `purpose` is for the message, such as "2 ranks".
/// @throws ConfigError naming the limit and how many are needed
LOCKSTEP_API void require_open_files(std::int64_t more, const std::string& purpose);

/// The error for a descriptor that could not be opened because of the limit.
LOCKSTEP_API ConfigError too_many_open_files(const std::string& what);

/// Opens /dev/null at each of descriptors 0, 1 and 2 that is closed: else the next socket or file would get
/// its number, and with it all that is meant for stdout or stderr. Called when the library is loaded, and at
/// the entries of the library for programs that close them later.
LOCKSTEP_API void occupy_standard_descriptors();

/// For a process that trains: each step asks for the same blocks again, and what is freed between, up to 1
/// GiB, stays for the next one. By itself malloc gives what is free at the end of the heap back to the
/// system, but for 64 MiB at most, and the system clears each page anew when it is asked for again. Nothing
/// where the environment tells malloc what to do (MALLOC_*_, GLIBC_TUNABLES), or return_freed_memory()
/// was called.
LOCKSTEP_API void disable_heap_trimming();

/// For a process that has no memory to spare: large blocks go back to the system when they are freed, for the
/// rest of the process. malloc would keep those of up to 32 MiB, for speed, and the small ones among them
/// would hold the heap at its largest size.
LOCKSTEP_API void return_freed_memory();

}  // namespace lockstep

namespace lockstep::detail {

/// Asks for short time slices for the calling thread, 0.3 ms. It then goes before threads with longer
/// ones when it wakes, even where it has had its share: who mostly waits for other ranks, while computing
/// threads hold all cores, waits for no core besides. Its share stays what it is. Linux 6.12 and later; does
/// nothing elsewhere. Source: sched_setattr(2), EEVDF's request size.
LOCKSTEP_API void ask_for_short_time_slices();

/// Calls `act` at exit(), or at end_of_process() if that comes first; not in forked children. Thread-safe.
LOCKSTEP_API void at_end_of_process(std::function<void()> act);

/// For processes that end by _exit(), as ranks do that were forked: does what at_end_of_process() was given
/// by this process, the last first, once.
LOCKSTEP_API void end_of_process();

}  // namespace lockstep::detail
