// How long the system lets a thread run at a stretch.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Asks for short time slices for the calling thread, 0.3 ms. It then goes before threads with longer
/// ones when it wakes, even where it has had its share: who mostly waits for other ranks, while computing
/// threads hold all cores, waits for no core besides. Its share stays what it is. Linux 6.12 and later; does
/// nothing elsewhere. Source: sched_setattr(2), EEVDF's request size.
LOCKSTEP_API void ask_for_short_time_slices();

}  // namespace lockstep::detail
