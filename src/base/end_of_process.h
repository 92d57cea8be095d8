// What is to be done when this process ends in good order, also where it does so without exit().
#pragma once

#include <functional>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Calls `act` at exit(), or at end_of_process() if that comes first; not in forked children. Thread-safe.
LOCKSTEP_API void at_end_of_process(std::function<void()> act);

/// For processes that end by _exit(), as ranks do that were forked: does what at_end_of_process() was given
/// by this process, the last first, once.
LOCKSTEP_API void end_of_process();

}  // namespace lockstep::detail
