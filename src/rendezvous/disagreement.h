// What is wrong when ranks announce different things for one meeting.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/meetings.h"
#include "rendezvous/verdict.h"

namespace lockstep::rendezvous {

/// Names all sides, and the ranks that differ from most of the others; nothing where all that have come to
/// `meeting` announced the same. Ranks that know the same announcements come to the same words.
std::optional<Verdict> disagreement_in(const Meeting& meeting, Meetings& meetings, const Describe& describe);

}  // namespace lockstep::rendezvous
