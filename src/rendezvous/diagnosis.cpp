#include "rendezvous/diagnosis.h"

#include <algorithm>
#include <iterator>

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

bool contains(std::span<const int> ranks, int rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

}  // namespace

void Diagnosis::ask(std::span<const int> ranks) {
  for (const int rank : ranks) links_.send(rank, header_of(MessageKind::kWhere), {}, steady_clock::now());
}

void Diagnosis::answer(int asker) {
  Whereabouts here{.text = "outside of collectives"};
  Announcement announcement;
  const auto& under_way = meetings_.under_way();
  if (!under_way.empty()) {
    const auto stuck = std::ranges::find_if(under_way, &Meeting::is_stuck);
    const Meeting& meeting = stuck != under_way.end() ? **stuck : *under_way.front();
    announcement = meeting.announcement;
    here = {.is_waiting = true,
            .is_stuck = stuck != under_way.end(),
            .missing = meetings_.missing_from(meeting),
            .text = describe_(announcement)};
  }
  const auto payload = to_payload(here);
  links_.send(asker, header_of(MessageKind::kHere, payload, announcement), payload, steady_clock::now());
}

std::optional<Verdict> Diagnosis::note_answer(int rank, const Announcement& announcement,
                                              Whereabouts whereabouts) {
  peers_[static_cast<std::size_t>(rank)] = {.heard_at = steady_clock::now(),
                                            .whereabouts = std::move(whereabouts)};
  return mutual_wait(rank, announcement);
}

// Two ranks that wait for each other in different groups. Connections keep the order of messages, so the
// answer knows of all that we announced before we asked; what we announced since is in the inbox.
std::optional<Verdict> Diagnosis::mutual_wait(int rank, const Announcement& theirs) {
  const auto& whereabouts = peer(rank).whereabouts;
  if (!whereabouts.is_stuck || !contains(whereabouts.missing, rank_)) return std::nullopt;
  if (meetings_.inbox().has_announced(theirs.group, theirs.sequence)) return std::nullopt;
  for (const Meeting* meeting : meetings_.under_way()) {
    if (!meeting->is_stuck() || !contains(meetings_.missing_from(*meeting), rank)) continue;
    auto ours = "rank " + std::to_string(rank_) + ": " + describe_(meeting->announcement);
    auto other = "rank " + std::to_string(rank) + ": " + whereabouts.text;
    if (rank < rank_) std::swap(ours, other);
    return Verdict{.failure = Failure::kMismatch,
                   .ranks = {std::min(rank, rank_), std::max(rank, rank_)},
                   .parts = {.what = "ranks wait for each other in different collectives",
                             .expected = "collectives of all groups in the same order on every rank",
                             .got = ours + "; " + other}};
  }
  return std::nullopt;
}

std::vector<int> Diagnosis::silent_since(TimePoint asked_at, std::span<const int> ranks) const {
  std::vector<int> silent;
  std::ranges::copy_if(ranks, std::back_inserter(silent),
                       [&](int rank) { return rank != rank_ && peer(rank).heard_at < asked_at; });
  return silent;
}

std::string Diagnosis::states_of(std::span<const int> ranks, TimePoint asked_at) const {
  std::string states;
  for (const int rank : ranks) {
    const auto& [heard_at, whereabouts] = peer(rank);
    states += (states.empty() ? "rank " : "; rank ") + std::to_string(rank);
    if (heard_at < asked_at) {
      states += " does not answer (stopped, or its machine cannot be reached)";
    } else {
      states += (whereabouts.is_waiting ? " waits in " : " is ") + whereabouts.text;
    }
  }
  return states;
}

}  // namespace lockstep::rendezvous
