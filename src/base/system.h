// Settings of this process towards the operating system: limits of descriptors, freed memory, time slices,
// and actions at the end of the process; and the names of host and boot.
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

/// A text that is different after each boot of the machine; empty where the kernel has none. Source:
/// random(4).
inline std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace lockstep::detail

namespace lockstep {

/// Ensures that `more` descriptors can be opened beside the open ones: raises the limit as far as needed and
/// as the system allows. `purpose` is for the message, such as "2 ranks".
/// @throws ConfigError naming the limit and how many are needed
LOCKSTEP_API void require_open_files(std::int64_t more, const std::string& purpose);

/// The error for a descriptor that could not be opened because of the limit.
LOCKSTEP_API ConfigError too_many_open_files(const std::string& what);

/// Opens /dev/null at each of descriptors 0, 1 and 2 that is closed: otherwise the next socket or file would
/// get its number and receive what is written to stdout or stderr. Called when the library is loaded, and by
/// the entry points of the library, since a program may close them later.
LOCKSTEP_API void occupy_standard_descriptors();

/// Writes out what std::cout and stdout still hold. @throws IoError where not all that was written has arrived:
/// who redirects it to a file should not take a part for the whole
LOCKSTEP_API void finish_standard_output();

/// Makes malloc hold up to 1 GiB of freed memory for the next training step, which asks for the same blocks
/// again. By default malloc returns all but 64 MiB at the end of the heap to the system, which then has to
/// clear each page again. Does nothing where the environment configures malloc (MALLOC_*_, GLIBC_TUNABLES),
/// or return_freed_memory() was called.
LOCKSTEP_API void disable_heap_trimming();

/// Makes malloc return large blocks to the system when they are freed, for the rest of the process, where
/// memory is short. By default malloc holds blocks of up to 32 MiB for speed, and small blocks among them
/// would hold the heap at its largest size.
LOCKSTEP_API void return_freed_memory();

}  // namespace lockstep

namespace lockstep::detail {

/// Asks for time slices of 0.3 ms for the calling thread. When it wakes, it is then scheduled before threads
/// with longer slices, so that a thread that mostly waits for other ranks does not also wait for a core while
/// computing threads occupy all of them. Its share of the processor does not change. Works on Linux 6.12 and
/// later; does nothing elsewhere. Source: sched_setattr(2), EEVDF's request size.
LOCKSTEP_API void ask_for_short_time_slices();

/// Calls `act` at exit(), or at end_of_process() if that comes first; not in forked children. Thread-safe.
LOCKSTEP_API void at_end_of_process(std::function<void()> act);

/// Runs what this process has passed to at_end_of_process(), the last first, once. For processes that end by
/// _exit(), such as forked ranks.
LOCKSTEP_API void end_of_process();

}  // namespace lockstep::detail
