#include "rendezvous/control_mesh.h"

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kSpin = microseconds(50);             // sleeping and waking cost as much
constexpr auto kFirstQuestion = milliseconds(50);    // after this time of waiting
constexpr auto kRareQuestions = milliseconds(5000);  // in the end
constexpr auto kNap = milliseconds(50);              // of a reader, so that others' failures reach it
constexpr auto kAnswerTime = milliseconds(200);      // of a rank that computes; ten looks of its service
constexpr auto kServicePeriod = milliseconds(10);
constexpr auto kOrderlyEnding = milliseconds(200);

Header header_of(MessageKind kind, std::string_view payload = {}, const Announcement& announcement = {}) {
  return {.kind = kind,
          .payload_bytes = static_cast<std::uint32_t>(payload.size()),
          .announcement = announcement};
}

std::string ranks_text(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

using Camp = std::pair<Announcement, std::vector<int>>;

// The ranks that differ from most of them; all ranks where no camp is the largest.
std::vector<int> outvoted(std::vector<Camp> camps) {
  std::ranges::sort(camps, std::ranges::greater(), [](const Camp& camp) { return camp.second.size(); });
  const bool is_tie = camps[0].second.size() == camps[1].second.size();
  std::vector<int> ranks;
  for (auto camp = camps.begin() + (is_tie ? 0 : 1); camp != camps.end(); ++camp) {
    ranks.insert(ranks.end(), camp->second.begin(), camp->second.end());
  }
  std::ranges::sort(ranks);
  return ranks;
}

bool contains(std::span<const int> ranks, int rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

}  // namespace

ControlMesh::ControlMesh(int rank, std::vector<UniqueFd> connections, Describe describe)
    : rank_(rank),
      describe_(std::move(describe)),
      links_(std::move(connections)),
      inbox_(links_.size()),
      peers_(static_cast<std::size_t>(links_.size())),
      service_([this](const std::stop_token& stop) { serve(stop); }) {}

ControlMesh::~ControlMesh() {
  service_.request_stop();
  service_.join();
}

// On the path of every collective: nothing is allocated but room for payloads, unless there is something to
// complain about.
void ControlMesh::meet(const Meeting& meeting, const Take& take) {
  std::unique_lock lock(mutex_);
  const Attendance attendance(*this, meeting);
  lock.unlock();
  const auto header = header_of(MessageKind::kAnnounce, meeting.payload, meeting.announcement);
  for (const int member : meeting.members) links_.send(member, header, meeting.payload, meeting.deadline);
  lock.lock();
  await_members(lock, meeting);
  require_agreement(lock, meeting);
  for (const int member : meeting.members) {
    if (member == rank_) continue;
    if (take) take(member, inbox_.front(meeting.announcement.group, member)->payload);
    inbox_.pop(meeting.announcement.group, member);
  }
}

void ControlMesh::await_members(std::unique_lock<std::mutex>& lock, const Meeting& meeting) {
  const auto begin = Clock::now();
  milliseconds patience = kFirstQuestion;
  auto ask_at = begin + patience;
  while (!is_complete(meeting)) {
    if (failure_) raise_failure(describe_(meeting.announcement));
    require_presence(meeting);
    if (meeting.caller && meeting.caller->has_given_up()) {
      throw CommError("comm", {.what = "the communicator is closed"});
    }
    const auto now = Clock::now();
    if (now >= meeting.deadline) give_up(lock, meeting);
    if (now >= ask_at) {
      ask(missing_from(meeting));
      patience = std::min(2 * patience, kRareQuestions);
      ask_at = now + patience;
    }
    wait_for_news(lock, now < begin + kSpin ? now : std::min(ask_at, meeting.deadline));
  }
}

bool ControlMesh::is_complete(const Meeting& meeting) {
  return std::ranges::all_of(meeting.members, [&](int member) {
    return member == rank_ || inbox_.front(meeting.announcement.group, member) != nullptr;
  });
}

std::vector<int> ControlMesh::missing_from(const Meeting& meeting) {
  std::vector<int> missing;
  std::ranges::copy_if(meeting.members, std::back_inserter(missing), [&](int member) {
    return member != rank_ && !inbox_.front(meeting.announcement.group, member);
  });
  return missing;
}

// Every member has the same headers before it and comes to the same words.
void ControlMesh::require_agreement(std::unique_lock<std::mutex>& lock, const Meeting& meeting) {
  const auto announced_by = [&](int member) -> const Announcement& {
    return member == rank_ ? meeting.announcement
                           : inbox_.front(meeting.announcement.group, member)->announcement;
  };
  const bool agreed = std::ranges::all_of(
      meeting.members, [&](int member) { return announced_by(member) == meeting.announcement; });
  if (agreed) return;
  if (!is_reading_) read(lock, Clock::now());  // an earlier failure may explain it
  std::vector<Camp> camps;
  for (const int member : meeting.members) {
    auto camp = std::ranges::find(camps, announced_by(member), [](const Camp& each) { return each.first; });
    if (camp == camps.end()) camp = camps.insert(camps.end(), {announced_by(member), {}});
    camp->second.push_back(member);
  }
  std::string sides;
  for (const auto& [announcement, members] : camps) {
    sides += (sides.empty() ? "" : "; ") + ranks_text(members) + ": " + describe_(announcement);
  }
  fail({.failure = Failure::kMismatch,
        .ranks = outvoted(camps),
        .parts = {.what = "ranks do not call the same collective",
                  .expected = "the same call on every rank of the group",
                  .got = sides,
                  .hint = "look for a branch that depends on the rank or on its data"}});
  raise_failure(describe_(meeting.announcement));
}

// Who said goodbye will not come any more. All members hear it, and each draws the conclusion.
void ControlMesh::require_presence(const Meeting& meeting) {
  const auto group = meeting.announcement.group;
  for (const int member : meeting.members) {
    const bool has_left = peers_[static_cast<std::size_t>(member)].has_left ||
                          inbox_.has_left(group, member) || inbox_.has_left(meeting.home, member);
    if (!has_left || inbox_.front(group, member)) continue;
    const auto rank = std::to_string(member);
    raise({.failure = Failure::kPeerLost,
           .ranks = {member},
           .parts = {.what = "rank " + rank + " left the group before a collective of all",
                     .hint = "all ranks must call the same collectives before they close"}},
          place_of(describe_(meeting.announcement)));
  }
}

void ControlMesh::give_up(std::unique_lock<std::mutex>& lock, const Meeting& meeting) {
  const auto asked_at = Clock::now();
  await_answers(lock, missing_from(meeting), asked_at + kAnswerTime);
  const auto missing = missing_from(meeting);
  if (missing.empty()) return;  // they came at the last moment
  fail({.failure = Failure::kTimeout,
        .ranks = missing,
        .parts = {
            .what = ranks_text(missing) + " did not come to " + describe_(meeting.announcement) + " in time",
            .got = states_of(missing, asked_at),
            .hint = "see option timeout"}});
}

void ControlMesh::await_answers(std::unique_lock<std::mutex>& lock, std::span<const int> ranks,
                                Clock::time_point until) {
  const auto asked_at = Clock::now();
  ask(ranks);
  while (!failure_ && Clock::now() < until && !silent_since(asked_at, ranks).empty())
    wait_for_news(lock, until);
}

std::vector<int> ControlMesh::silent_since(Clock::time_point asked_at, std::span<const int> ranks) const {
  std::vector<int> silent;
  std::ranges::copy_if(ranks, std::back_inserter(silent), [&](int rank) {
    return rank != rank_ && peers_[static_cast<std::size_t>(rank)].heard_at < asked_at;
  });
  return silent;
}

std::string ControlMesh::states_of(std::span<const int> ranks, Clock::time_point asked_at) const {
  std::string states;
  for (const int rank : ranks) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    states += (states.empty() ? "rank " : "; rank ") + std::to_string(rank);
    if (peer.heard_at < asked_at) {
      states += " does not answer (stopped, or its machine cannot be reached)";
    } else {
      states += (peer.whereabouts.is_waiting ? " waits in " : " is ") + peer.whereabouts.text;
    }
  }
  return states;
}

void ControlMesh::disagree(std::vector<int> ranks, std::string sides, const std::string& where) {
  std::unique_lock lock(mutex_);
  fail({.failure = Failure::kMismatch,
        .ranks = std::move(ranks),
        .parts = {.what = "ranks do not call the same collective",
                  .expected = "sizes that fit on every two ranks",
                  .got = std::move(sides)}});
  raise_failure(where);
}

void ControlMesh::explain(std::span<const int> members, const std::string& where, milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto asked_at = Clock::now();
  ask(members);
  while (!failure_ && Clock::now() < asked_at + patience) wait_for_news(lock, asked_at + patience);
  const auto silent = silent_since(asked_at, members);
  if (!silent.empty()) {
    fail({.failure = Failure::kTimeout,
          .ranks = silent,
          .parts = {.what = ranks_text(silent) + " did not finish a collective in time",
                    .got = states_of(silent, asked_at),
                    .hint = "see option timeout"}});
  }
  if (failure_) raise_failure(where);
}

ControlMesh::Token ControlMesh::on_failure(std::function<void()> abort) {
  auto token = std::make_shared<const std::function<void()>>(std::move(abort));
  const std::lock_guard lock(mutex_);
  std::erase_if(aborts_, [](const auto& each) { return each.expired(); });
  aborts_.push_back(token);
  return token;
}

void ControlMesh::leave(std::uint64_t group, std::span<const int> members, bool tells) {
  if (tells) {
    const auto header = header_of(MessageKind::kGoodbye, {}, {.group = group});
    for (const int member : members) links_.send(member, header, {}, Clock::now());
  }
  const std::lock_guard lock(mutex_);
  inbox_.forget(group);
}

void ControlMesh::leave() {
  for (int rank = 0; rank < size(); ++rank) {
    links_.send(rank, header_of(MessageKind::kGoodbye), {}, Clock::now());
  }
}

ControlMesh::Attendance::Attendance(ControlMesh& mesh, const Meeting& meeting)
    : mesh_(mesh), meeting_(meeting) {
  mesh_.meetings_.push_back(&meeting);
  mesh_.inbox_.note_own(meeting.announcement);
}

ControlMesh::Attendance::~Attendance() { std::erase(mesh_.meetings_, &meeting_); }

// One waiter reads for all; the others sleep until it has.
void ControlMesh::wait_for_news(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
  const auto now = Clock::now();
  if (is_reading_) {
    changed_.wait_until(lock, std::min(std::max(until, now + microseconds(1)), now + kNap));
    return;
  }
  read(lock, std::min(until, now + kNap));
}

void ControlMesh::read(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
  is_reading_ = true;
  lock.unlock();
  links_.read(until, events_);
  lock.lock();
  for (auto& event : events_)
    event.message ? deliver(event.rank, std::move(*event.message)) : lose(event.rank);
  events_.clear();
  is_reading_ = false;
  changed_.notify_all();
}

void ControlMesh::deliver(int rank, Message message) {
  auto& peer = peers_[static_cast<std::size_t>(rank)];
  switch (message.header.kind) {
    case MessageKind::kAnnounce:
      return inbox_.push(rank, std::move(message));
    case MessageKind::kWhere:
      return answer(rank);
    case MessageKind::kHere:
      peer.heard_at = Clock::now();
      peer.whereabouts = whereabouts_from(message.payload);
      return compare_whereabouts(rank, message.header.announcement);
    case MessageKind::kVerdict:
      return fail(verdict_from(message.payload));
    case MessageKind::kGoodbye:
      if (message.header.announcement.group != 0) {
        inbox_.note_left(message.header.announcement.group, rank);
      } else {
        peer.has_left = true;
      }
  }
}

void ControlMesh::lose(int rank) {
  if (peers_[static_cast<std::size_t>(rank)].has_left) return;
  fail({.failure = Failure::kPeerLost,
        .ranks = {rank},
        .parts = {.what = "rank " + std::to_string(rank) + " is gone: it died, or left after an error",
                  .hint = "its own message tells why"}});
}

void ControlMesh::ask(std::span<const int> ranks) {
  for (const int rank : ranks) links_.send(rank, header_of(MessageKind::kWhere), {}, Clock::now());
}

void ControlMesh::answer(int rank) {
  Whereabouts here{.text = "outside of collectives"};
  Announcement announcement;
  if (!meetings_.empty()) {
    const auto awaited = std::ranges::find_if(
        meetings_, [](const Meeting* each) { return each->caller && each->caller->is_stuck(); });
    const Meeting& meeting = awaited != meetings_.end() ? **awaited : *meetings_.front();
    announcement = meeting.announcement;
    here = {.is_waiting = true,
            .is_stuck = awaited != meetings_.end(),
            .missing = missing_from(meeting),
            .text = describe_(announcement)};
  }
  const auto payload = to_payload(here);
  links_.send(rank, header_of(MessageKind::kHere, payload, announcement), payload, Clock::now());
}

// Two ranks that wait for each other in different groups. Connections keep the order of messages, so the
// answer knows of all that we announced before we asked; what we announced since is in the inbox.
void ControlMesh::compare_whereabouts(int rank, const Announcement& theirs) {
  const auto& whereabouts = peers_[static_cast<std::size_t>(rank)].whereabouts;
  if (!whereabouts.is_stuck || !contains(whereabouts.missing, rank_)) return;
  if (inbox_.has_announced(theirs.group, theirs.sequence)) return;
  for (const Meeting* meeting : meetings_) {
    if (!meeting->caller || !meeting->caller->is_stuck() || !contains(missing_from(*meeting), rank)) continue;
    auto ours = "rank " + std::to_string(rank_) + ": " + describe_(meeting->announcement);
    auto other = "rank " + std::to_string(rank) + ": " + whereabouts.text;
    if (rank < rank_) std::swap(ours, other);
    return fail({.failure = Failure::kMismatch,
                 .ranks = {std::min(rank, rank_), std::max(rank, rank_)},
                 .parts = {.what = "ranks wait for each other in different collectives",
                           .expected = "collectives of all groups in the same order on every rank",
                           .got = ours + "; " + other}});
  }
}

// Also passes on what it was told itself: then nobody's end can overtake the news of its cause.
void ControlMesh::fail(Verdict verdict) {
  if (failure_) return;
  const auto payload = to_payload(verdict);
  for (int rank = 0; rank < size(); ++rank) {
    links_.send(rank, header_of(MessageKind::kVerdict, payload), payload, Clock::now());
  }
  failure_ = std::move(verdict);
  failed_at_ = Clock::now();
  changed_.notify_all();
}

void ControlMesh::raise_failure(const std::string& where) const { raise(*failure_, place_of(where)); }

std::string ControlMesh::place_of(const std::string& where) const {
  return "rank " + std::to_string(rank_) + (where.empty() ? "" : ", in " + where);
}

void ControlMesh::serve(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    period_.wait_for(lock, stop, kServicePeriod, [] { return false; });
    if (!is_reading_) read(lock, Clock::now());
    abort_if_due(lock);
  }
}

void ControlMesh::abort_if_due(std::unique_lock<std::mutex>& lock) {
  if (!failure_ || aborts_.empty()) return;
  // What was agreed on before a rank left may still be finished.
  const bool is_due = failure_->failure == Failure::kMismatch || Clock::now() >= failed_at_ + kOrderlyEnding;
  if (!is_due) return;
  const auto aborts = std::exchange(aborts_, {});
  lock.unlock();
  for (const auto& each : aborts) {
    if (const auto abort = each.lock()) (*abort)();
  }
  lock.lock();
}

}  // namespace lockstep::rendezvous
