#include "rendezvous/diagnosis.h"

#include <algorithm>
#include <utility>

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

Verdict circle_of(std::span<const Hop> hops) {
  std::vector<Hop> sorted(hops.begin(), hops.end());
  std::ranges::sort(sorted, {}, &Hop::rank);
  Verdict verdict{.failure = Failure::kMismatch,
                  .parts = {.what = "ranks wait for each other in different collectives",
                            .expected = "collectives of all groups in the same order on every rank"}};
  auto& got = verdict.parts.got;
  for (const auto& hop : sorted) {
    verdict.ranks.push_back(hop.rank);
    got += (got.empty() ? "rank " : "; rank ") + std::to_string(hop.rank) + ": " + hop.text;
  }
  return verdict;
}

}  // namespace

void Diagnosis::ask(std::span<const int> ranks) {
  std::string trail;
  if (const auto* stuck = meetings_.stuck()) {
    const auto& announcement = stuck->meeting->announcement;
    trail = to_payload(Trail{.number = ++trails_,
                             .hops = {{.rank = rank_,
                                       .number = stuck->number,
                                       .group = announcement.group,
                                       .text = words_.describe(announcement)}}});
  }
  for (const int rank : ranks) {
    if (rank != rank_ && !peer(rank).has_left) send_question(rank, trail);
  }
}

void Diagnosis::send_question(int rank, const std::string& trail) {
  auto& asked = peers_[static_cast<std::size_t>(rank)];
  const auto now = steady_clock::now();
  if (asked.unanswered++ == 0) asked.quiet_since = now;
  links_.send(rank, header_of(MessageKind::kWhere, trail), trail, now);
}

void Diagnosis::note_answer(int rank, Whereabouts whereabouts) {
  auto& answered = peers_[static_cast<std::size_t>(rank)];
  answered.heard_at = answered.quiet_since = steady_clock::now();
  answered.unanswered = std::max(0, answered.unanswered - 1);
  answered.whereabouts = std::move(whereabouts);
}

void Diagnosis::answer(int asker) {
  const auto payload = to_payload(own());
  links_.send(asker, header_of(MessageKind::kHere, payload), payload, steady_clock::now());
}

Whereabouts Diagnosis::own() const {
  if (meetings_.under_way().empty()) {
    const auto activity = words_.activity();
    return {.doing = activity.empty() ? Doing::kElse : Doing::kWorking, .text = activity};
  }
  const auto* stuck = meetings_.stuck();
  const Meeting& meeting = *(stuck ? *stuck : meetings_.under_way().front()).meeting;
  return {.doing = Doing::kWaiting,
          .missing = meetings_.missing_from(meeting),
          .text = words_.describe(meeting.announcement)};
}

std::optional<Verdict> Diagnosis::follow(Trail trail) {
  const auto& waiter = trail.hops.back();
  const auto* stuck = meetings_.stuck();
  if (!stuck || !meetings_.is_awaited(waiter.group, waiter.rank)) return std::nullopt;
  const auto own = std::ranges::find(trail.hops, rank_, &Hop::rank);
  if (own != trail.hops.end()) {
    if (own->number != stuck->number) return std::nullopt;  // it has got on since
    return circle_of({own, trail.hops.end()});
  }
  auto& last = last_trails_[static_cast<std::size_t>(trail.hops.front().rank)];
  if (trail.number <= last) return std::nullopt;  // came another way as well
  last = trail.number;
  const auto& announcement = stuck->meeting->announcement;
  trail.hops.push_back({.rank = rank_,
                        .number = stuck->number,
                        .group = announcement.group,
                        .text = words_.describe(announcement)});
  const auto payload = to_payload(trail);
  for (const int rank : meetings_.missing_from(*stuck->meeting)) send_question(rank, payload);
  return std::nullopt;
}

}  // namespace lockstep::rendezvous
