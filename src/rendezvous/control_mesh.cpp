#include "rendezvous/control_mesh.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>

#include "rendezvous/disagreement.h"
#include "rendezvous/rank_text.h"

namespace lockstep::rendezvous {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr auto kSpin = microseconds(50);             // sleeping and waking cost as much
constexpr auto kFirstQuestion = milliseconds(50);    // after this time of waiting
constexpr auto kRareQuestions = milliseconds(5000);  // in the end
constexpr auto kAnswerTime = milliseconds(200);      // of a rank that computes; ten looks of its service
constexpr auto kServicePeriod = milliseconds(10);

// While it lives, the meeting is under way. Made and destroyed under the lock.
class Attendance {
 public:
  Attendance(Meetings& meetings, const Meeting& meeting) : meetings_(meetings), meeting_(meeting) {
    meetings_.begin(meeting_);
  }
  ~Attendance() { meetings_.end(meeting_); }
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;

 private:
  Meetings& meetings_;
  const Meeting& meeting_;
};

}  // namespace

ControlMesh::ControlMesh(int rank, std::vector<UniqueFd> connections, Describe describe)
    : rank_(rank),
      describe_(std::move(describe)),
      links_(std::move(connections)),
      meetings_(rank, links_.size()),
      failure_(rank, links_),
      diagnosis_(rank, links_, meetings_, describe_),
      has_left_(static_cast<std::size_t>(links_.size())),
      reader_(links_, [this](PeerLinks::Event event) { deliver(std::move(event)); }),
      service_([this](const std::stop_token& stop) { serve(stop); }) {}

ControlMesh::~ControlMesh() {
  service_.request_stop();
  service_.join();
}

// On the path of every collective: nothing is allocated but room for payloads, unless there is something to
// complain about.
void ControlMesh::meet(const Meeting& meeting, const Take& take) {
  Lock lock(mutex_);
  const Attendance attendance(meetings_, meeting);
  lock.unlock();
  const auto header = header_of(MessageKind::kAnnounce, meeting.payload, meeting.announcement);
  for (const int member : meeting.members) links_.send(member, header, meeting.payload, meeting.deadline);
  lock.lock();
  await_members(lock, meeting);
  require_agreement(lock, meeting);
  auto& inbox = meetings_.inbox();
  for (const int member : meeting.members) {
    if (member == rank_) continue;
    if (take) take(member, inbox.front(meeting.announcement.group, member)->payload);
    inbox.pop(meeting.announcement.group, member);
  }
}

void ControlMesh::await_members(Lock& lock, const Meeting& meeting) {
  const auto begin = Clock::now();
  milliseconds patience = kFirstQuestion;
  auto ask_at = begin + patience;
  while (!meetings_.is_complete(meeting)) {
    if (failure_.is_known()) failure_.raise(describe_(meeting.announcement));
    require_presence(meeting);
    if (meeting.caller && meeting.caller->has_given_up()) {
      throw CommError("comm", {.what = "the communicator is closed"});
    }
    const auto now = Clock::now();
    if (now >= meeting.deadline) give_up(lock, meeting);
    if (now >= ask_at) {
      diagnosis_.ask(meetings_.missing_from(meeting));
      patience = std::min(2 * patience, kRareQuestions);
      ask_at = now + patience;
    }
    reader_.wait(lock, now < begin + kSpin ? now : std::min(ask_at, meeting.deadline));
  }
}

// Every member has the same headers before it and comes to the same words.
void ControlMesh::require_agreement(Lock& lock, const Meeting& meeting) {
  auto verdict = disagreement_in(meeting, meetings_, describe_);
  if (!verdict) return;
  reader_.poll(lock);  // an earlier failure may explain it
  fail(std::move(*verdict));
  failure_.raise(describe_(meeting.announcement));
}

// Who said goodbye will not come any more. All members hear it, and each draws the conclusion.
void ControlMesh::require_presence(const Meeting& meeting) {
  const auto group = meeting.announcement.group;
  auto& inbox = meetings_.inbox();
  for (const int member : meeting.members) {
    const bool has_left = has_left_[static_cast<std::size_t>(member)] || inbox.has_left(group, member) ||
                          inbox.has_left(meeting.home, member);
    if (!has_left || inbox.front(group, member)) continue;
    const auto rank = std::to_string(member);
    raise({.failure = Failure::kPeerLost,
           .ranks = {member},
           .parts = {.what = "rank " + rank + " left the group before a collective of all",
                     .hint = "all ranks must call the same collectives before they close"}},
          failure_.place_of(describe_(meeting.announcement)));
  }
}

void ControlMesh::give_up(Lock& lock, const Meeting& meeting) {
  const auto asked_at = Clock::now();
  const auto until = asked_at + kAnswerTime;
  auto missing = meetings_.missing_from(meeting);
  diagnosis_.ask(missing);
  while (!failure_.is_known() && Clock::now() < until && !diagnosis_.silent_since(asked_at, missing).empty())
    reader_.wait(lock, until);
  missing = meetings_.missing_from(meeting);
  if (missing.empty()) return;  // they came at the last moment
  fail({.failure = Failure::kTimeout,
        .ranks = missing,
        .parts = {
            .what = ranks_text(missing) + " did not come to " + describe_(meeting.announcement) + " in time",
            .got = diagnosis_.states_of(missing, asked_at),
            .hint = "see option timeout"}});
}

void ControlMesh::disagree(std::vector<int> ranks, std::string sides, const std::string& where) {
  const Lock lock(mutex_);
  fail({.failure = Failure::kMismatch,
        .ranks = std::move(ranks),
        .parts = {.what = "ranks do not call the same collective",
                  .expected = "sizes that fit on every two ranks",
                  .got = std::move(sides)}});
  failure_.raise(where);
}

void ControlMesh::explain(std::span<const int> members, const std::string& where, milliseconds patience) {
  Lock lock(mutex_);
  const auto asked_at = Clock::now();
  diagnosis_.ask(members);
  while (!failure_.is_known() && Clock::now() < asked_at + patience) reader_.wait(lock, asked_at + patience);
  const auto silent = diagnosis_.silent_since(asked_at, members);
  if (!silent.empty()) {
    fail({.failure = Failure::kTimeout,
          .ranks = silent,
          .parts = {.what = ranks_text(silent) + " did not finish a collective in time",
                    .got = diagnosis_.states_of(silent, asked_at),
                    .hint = "see option timeout"}});
  }
  if (failure_.is_known()) failure_.raise(where);
}

ControlMesh::Token ControlMesh::on_failure(std::function<void()> abort) {
  const Lock lock(mutex_);
  return failure_.on_failure(std::move(abort));
}

void ControlMesh::leave(std::uint64_t group, std::span<const int> members, bool tells) {
  if (tells) {
    const auto header = header_of(MessageKind::kGoodbye, {}, {.group = group});
    for (const int member : members) links_.send(member, header, {}, Clock::now());
  }
  const Lock lock(mutex_);
  meetings_.inbox().forget(group);
}

void ControlMesh::leave() {
  for (int rank = 0; rank < size(); ++rank) {
    links_.send(rank, header_of(MessageKind::kGoodbye), {}, Clock::now());
  }
}

void ControlMesh::deliver(PeerLinks::Event event) {
  if (!event.message) return lose(event.rank);
  auto& message = *event.message;
  const auto& announcement = message.header.announcement;
  switch (message.header.kind) {
    case MessageKind::kAnnounce:
      return meetings_.inbox().push(event.rank, std::move(message));
    case MessageKind::kWhere:
      return diagnosis_.answer(event.rank);
    case MessageKind::kHere:
      if (auto verdict = diagnosis_.note_answer(event.rank, announcement, whereabouts_from(message.payload)))
        fail(std::move(*verdict));
      return;
    case MessageKind::kVerdict:
      return fail(verdict_from(message.payload));
    case MessageKind::kGoodbye:
      return note_goodbye(event.rank, announcement.group);
  }
}

void ControlMesh::note_goodbye(int rank, std::uint64_t group) {
  if (group != 0) return meetings_.inbox().note_left(group, rank);
  has_left_[static_cast<std::size_t>(rank)] = true;
}

void ControlMesh::lose(int rank) {
  if (has_left_[static_cast<std::size_t>(rank)]) return;
  fail({.failure = Failure::kPeerLost,
        .ranks = {rank},
        .parts = {.what = "rank " + std::to_string(rank) + " is gone: it died, or left after an error",
                  .hint = "its own message tells why"}});
}

void ControlMesh::fail(Verdict verdict) {
  failure_.declare(std::move(verdict));
  reader_.wake();
}

void ControlMesh::serve(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (!stop.stop_requested()) {
    period_.wait_for(lock, stop, kServicePeriod, [] { return false; });
    reader_.poll(lock);
    abort_if_due(lock);
  }
}

void ControlMesh::abort_if_due(Lock& lock) {
  const auto aborts = failure_.take_due();
  if (aborts.empty()) return;
  lock.unlock();
  for (const auto& each : aborts) {
    if (const auto abort = each.lock()) (*abort)();
  }
  lock.lock();
}

}  // namespace lockstep::rendezvous
