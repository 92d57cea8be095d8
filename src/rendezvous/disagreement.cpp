#include "rendezvous/disagreement.h"

#include <algorithm>
#include <utility>

#include "rendezvous/rank_text.h"

namespace lockstep::rendezvous {
namespace {

/// Ranks that announced the same.
struct Camp {
  Announcement announcement;
  std::vector<int> ranks;
};

std::vector<Camp> camps_of(const Meeting& meeting, const Meetings& meetings) {
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

}  // namespace

std::vector<int> outvoted(std::vector<std::vector<int>> camps) {
  std::ranges::sort(camps, std::ranges::greater(), &std::vector<int>::size);
  const bool is_tie = camps[0].size() == camps[1].size();
  std::vector<int> ranks;
  for (auto camp = camps.begin() + (is_tie ? 0 : 1); camp != camps.end(); ++camp) {
    ranks.insert(ranks.end(), camp->begin(), camp->end());
  }
  std::ranges::sort(ranks);
  return ranks;
}

Verdict disagreement_in(const Meeting& meeting, const Meetings& meetings, const Words& words) {
  const auto camps = camps_of(meeting, meetings);
  std::string sides;
  std::vector<std::vector<int>> ranks;
  for (const auto& camp : camps) {
    ranks.push_back(camp.ranks);
    sides += (sides.empty() ? "" : "; ") + ranks_text(camp.ranks) + ": " + words.describe(camp.announcement);
  }
  return {.failure = Failure::kMismatch,
          .ranks = outvoted(std::move(ranks)),
          .parts = {.what = "ranks do not call the same collective",
                    .expected = "the same call on every rank of the group",
                    .got = sides,
                    .hint = "look for a branch that depends on the rank or on its data"}};
}

}  // namespace lockstep::rendezvous
