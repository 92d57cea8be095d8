// Where in a collective through segments, or a meeting of several hosts, a rank of comm_case misbehaves.
#pragma once

#include <functional>

namespace lockstep::testing {

/// What a rank has done of a collective of one chunk, in which it raises three flags; or of one whose data
/// travel with the announcement, between hosts.
enum class Phase {
  kNothing,  ///< about to announce it
  kAnnounced,
  kStaged,  ///< what others are to have is in its slot
  kSummed,  ///< or taken what others have staged; not told to them yet
  kFinished,
  kCollected,  ///< the first rank of a host has told other hosts, and has what they announce
  kPassedOn    ///< and its own host has it, too
};
inline constexpr int kPhases = 5;

/// Whose flags a rank raises.
enum class Part { kInSegments, kFirstOfHost, kOtherOfHost };

/// Calls `misdeed` when this process has come to `phase` of the next collective that it carries out in
/// segments, or with an announcement between hosts. Takes the place of the library's post() in this program,
/// which tells it.
void at_phase(Phase phase, Part part, std::function<void()> misdeed);

}  // namespace lockstep::testing
