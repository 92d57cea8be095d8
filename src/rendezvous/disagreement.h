// What is wrong when ranks announce different things for one meeting.
#pragma once

#include <vector>

#include <lockstep/base/export.h>

#include "rendezvous/meetings.h"
#include "rendezvous/verdict.h"

namespace lockstep::rendezvous {

/// Of two camps of ranks or more: those that differ from most ranks; all where no camp is the largest.
LOCKSTEP_API std::vector<int> outvoted(std::vector<std::vector<int>> camps);

/// Names all sides, and the ranks that differ from most of the others. Those that have come to `meeting` have
/// not announced the same. Ranks that know the same announcements come to the same words.
Verdict disagreement_in(const Meeting& meeting, const Meetings& meetings, const Words& words);

}  // namespace lockstep::rendezvous
