#include "rendezvous/disagreement.h"

#include <algorithm>

#include "rendezvous/rank_text.h"

namespace lockstep::rendezvous {
namespace {

/// Ranks that announced the same.
struct Camp {
  Announcement announcement;
  std::vector<int> ranks;
};

std::vector<Camp> camps_of(const Meeting& meeting, Meetings& meetings) {
  std::vector<Camp> camps;
  for (const int member : meeting.members) {
    const auto* announced = meetings.announced(meeting, member);
    if (!announced) continue;
    auto camp = std::ranges::find(camps, *announced, &Camp::announcement);
    if (camp == camps.end()) camp = camps.insert(camps.end(), {*announced, {}});
    camp->ranks.push_back(member);
  }
  return camps;
}

// The ranks that differ from most of them; all ranks where no camp is the largest.
std::vector<int> outvoted(std::vector<Camp> camps) {
  std::ranges::stable_sort(camps, std::ranges::greater(), [](const Camp& camp) { return camp.ranks.size(); });
  const bool is_tie = camps[0].ranks.size() == camps[1].ranks.size();
  std::vector<int> ranks;
  for (auto camp = camps.begin() + (is_tie ? 0 : 1); camp != camps.end(); ++camp) {
    ranks.insert(ranks.end(), camp->ranks.begin(), camp->ranks.end());
  }
  std::ranges::sort(ranks);
  return ranks;
}

// On the path of every collective.
bool is_unanimous(const Meeting& meeting, Meetings& meetings) {
  return std::ranges::all_of(meeting.members, [&](int member) {
    const auto* announced = meetings.announced(meeting, member);
    return !announced || *announced == meeting.announcement;
  });
}

}  // namespace

std::optional<Verdict> disagreement_in(const Meeting& meeting, Meetings& meetings, const Describe& describe) {
  if (is_unanimous(meeting, meetings)) return std::nullopt;
  const auto camps = camps_of(meeting, meetings);
  std::string sides;
  for (const auto& camp : camps) {
    sides += (sides.empty() ? "" : "; ") + ranks_text(camp.ranks) + ": " + describe(camp.announcement);
  }
  return Verdict{.failure = Failure::kMismatch,
                 .ranks = outvoted(camps),
                 .parts = {.what = "ranks do not call the same collective",
                           .expected = "the same call on every rank of the group",
                           .got = sides,
                           .hint = "look for a branch that depends on the rank or on its data"}};
}

}  // namespace lockstep::rendezvous
