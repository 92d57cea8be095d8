// All processes below this one, also those whose parents are gone.
#pragma once

namespace lockstep::launch {

/// From now on a process below this one whose parent ends becomes a child of this one. Inherited by nobody.
/// Source: prctl(2), PR_SET_CHILD_SUBREAPER.
void adopt_orphans();

/// Sends SIGKILL to every process below this one until there is none, for a second at most: one that hangs
/// in the kernel dies when it comes back.
void kill_descendants();

}  // namespace lockstep::launch
