// How many threads a rank may keep busy.
#pragma once

namespace lockstep::launch {

/// The processors that this process may use, divided by `ranks`; at least 1.
int share_of_processors(int ranks);

}  // namespace lockstep::launch
