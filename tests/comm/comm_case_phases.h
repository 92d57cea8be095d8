// Where in a collective through segments a rank of comm_case misbehaves.
#pragma once

#include <functional>

namespace lockstep::testing {

/// What a rank has done of a collective of one chunk, in which it raises three flags.
enum class Phase {
  kNothing,  ///< about to announce it
  kAnnounced,
  kStaged,  ///< what others are to have is in its slot
  kSummed,  ///< or taken what others have staged; not told to them yet
  kFinished
};
inline constexpr int kPhases = 5;

/// Calls `misdeed` when this process has come to `phase` of the next collective that it carries out in
/// segments. Takes the place of the library's post() in this program, which tells it.
void at_phase(Phase phase, std::function<void()> misdeed);

}  // namespace lockstep::testing
