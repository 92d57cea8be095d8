// What is done when a process leaves its group: other modules may keep parts of it for what its users have
// dropped, and the other ranks would wait for them.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// `act`, which does not throw, is called whenever a ProcessGroup ends, in whatever way. One act; the same
/// may be set again. Thread-safe.
LOCKSTEP_API void set_leaving_act(void (*act)());

/// Calls it, if there is one.
void act_on_leaving();

}  // namespace lockstep::detail
