#include "rendezvous/diagnosis.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/base/rank_status.h>

#include "rendezvous/message.h"

namespace lockstep::rendezvous {

using nlohmann::json;

std::string to_payload(const Whereabouts& whereabouts) {
  return json{{"doing", whereabouts.doing}, {"missing", whereabouts.missing}, {"text", whereabouts.text}}
      .dump();
}

Whereabouts whereabouts_from(std::string_view payload) {
  const auto object = json::parse(payload);
  return {
      .doing = object.at("doing").get<Doing>(), .missing = object.at("missing"), .text = object.at("text")};
}

std::string to_payload(const Trail& trail) {
  auto hops = json::array();
  for (const auto& [rank, number, group, text] : trail.hops) hops.push_back({rank, number, group, text});
  return json{{"number", trail.number}, {"hops", hops}}.dump();
}

Trail trail_from(std::string_view payload) {
  const auto object = json::parse(payload);
  Trail trail{.number = object.at("number")};
  for (const auto& hop : object.at("hops"))
    trail.hops.push_back({.rank = hop.at(0), .number = hop.at(1), .group = hop.at(2), .text = hop.at(3)});
  return trail;
}

namespace {

/// Ranks with the same announcement.
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
    if (activity.empty()) return {.doing = Doing::kElse, .text = lockstep::whereabouts(rank_status())};
    return {.doing = Doing::kWorking, .text = activity};
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
    if (own->number != stuck->number) return std::nullopt;  // it has continued since
    return circle_of({own, trail.hops.end()});
  }
  auto& last = last_trails_[static_cast<std::size_t>(trail.hops.front().rank)];
  if (trail.number <= last) return std::nullopt;  // the same trail has arrived on another way before
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

namespace {

// The service thread of a rank that computes reads every 10 ms; on a busy machine it may be delayed for long.
constexpr auto kSilence = std::chrono::milliseconds(500);

template <class Predicate>
std::vector<int> those(std::span<const int> ranks, Predicate predicate) {
  std::vector<int> chosen;
  std::ranges::copy_if(ranks, std::back_inserter(chosen), predicate);
  return chosen;
}

}  // namespace

Inquiry::Inquiry(Diagnosis& diagnosis, std::span<const int> ranks)
    : diagnosis_(diagnosis), asked_at_(steady_clock::now()) {
  ask(ranks);
}

void Inquiry::ask(std::span<const int> ranks) {
  const auto already = asked_.size();
  for (const int rank : ranks) {
    if (diagnosis_.peer(rank).has_left || std::ranges::find(asked_, rank) != asked_.end()) continue;
    asked_.push_back(rank);
  }
  diagnosis_.ask(std::span(asked_).subspan(already));
}

bool Inquiry::has_answered(int rank) const {
  return rank == diagnosis_.rank() || diagnosis_.peer(rank).heard_at >= asked_at_;
}

Whereabouts Inquiry::whereabouts(int rank) const {
  return rank == diagnosis_.rank() ? diagnosis_.own() : diagnosis_.peer(rank).whereabouts;
}

bool Inquiry::is_silent(int rank) const {
  const auto& peer = diagnosis_.peer(rank);
  return !has_answered(rank) && !peer.has_left && peer.unanswered > 0 &&
         steady_clock::now() - peer.quiet_since >= kSilence;
}

bool Inquiry::is_over() {
  std::vector<int> awaited;
  for (const int rank : asked_) {
    const auto said = whereabouts(rank);
    if (!has_answered(rank) || said.doing != Doing::kWaiting) continue;
    awaited.insert(awaited.end(), said.missing.begin(), said.missing.end());
  }
  ask(awaited);
  return std::ranges::all_of(asked_, [&](int rank) {
    return has_answered(rank) || diagnosis_.peer(rank).has_left || is_silent(rank);
  });
}

std::vector<int> Inquiry::silent() const {
  auto ranks = those(asked_, [&](int rank) { return is_silent(rank); });
  std::ranges::sort(ranks);
  return ranks;
}

std::vector<int> Inquiry::ranks_to_blame(std::span<const int> others) const {
  if (auto ranks = silent(); !ranks.empty()) return ranks;
  auto idle =
      those(asked_, [&](int rank) { return has_answered(rank) && whereabouts(rank).doing == Doing::kElse; });
  std::ranges::sort(idle);
  return idle.empty() ? std::vector<int>(others.begin(), others.end()) : idle;
}

std::string Inquiry::state_of(int rank) const {
  const auto [doing, missing, text] = whereabouts(rank);
  if (!has_answered(rank) && diagnosis_.peer(rank).has_left) return " has left";
  if (!has_answered(rank)) return " does not answer (stopped, or its machine cannot be reached)";
  return doing == Doing::kElse      ? " is outside of collectives"
         : doing == Doing::kWaiting ? " waits in " + text
                                    : " is in " + text;
}

std::string Inquiry::places_of(std::span<const int> ranks) const {
  std::string places;
  for (const int rank : ranks) {
    const auto said = whereabouts(rank);
    const bool is_elsewhere = has_answered(rank) && said.doing == Doing::kElse;
    places += (places.empty() ? "rank " : "; rank ") + std::to_string(rank) + state_of(rank) +
              (is_elsewhere ? ", " + said.text : "");
  }
  return places;
}

std::string Inquiry::states() const {
  auto ranks = asked_;
  std::ranges::sort(ranks);
  std::string states;
  for (const int rank : ranks)
    states += (states.empty() ? "rank " : "; rank ") + std::to_string(rank) + state_of(rank);
  return states;
}

}  // namespace lockstep::rendezvous
