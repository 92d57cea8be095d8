#include "rendezvous/inquiry.h"

#include <algorithm>
#include <iterator>

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

// The service of a rank that computes looks every 10 ms; on a crowded machine it may be kept from it for
// long.
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

std::vector<int> Inquiry::culprits(std::span<const int> others) const {
  if (auto ranks = silent(); !ranks.empty()) return ranks;
  auto idle =
      those(asked_, [&](int rank) { return has_answered(rank) && whereabouts(rank).doing == Doing::kElse; });
  std::ranges::sort(idle);
  return idle.empty() ? std::vector<int>(others.begin(), others.end()) : idle;
}

std::string Inquiry::states() const {
  auto ranks = asked_;
  std::ranges::sort(ranks);
  std::string states;
  for (const int rank : ranks) {
    states += (states.empty() ? "rank " : "; rank ") + std::to_string(rank);
    const auto [doing, missing, text] = whereabouts(rank);
    if (!has_answered(rank) && diagnosis_.peer(rank).has_left) {
      states += " has left";
    } else if (!has_answered(rank)) {
      states += " does not answer (stopped, or its machine cannot be reached)";
    } else {
      states += doing == Doing::kElse      ? " is outside of collectives"
                : doing == Doing::kWaiting ? " waits in " + text
                                           : " is in " + text;
    }
  }
  return states;
}

}  // namespace lockstep::rendezvous
