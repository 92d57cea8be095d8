#include "rendezvous/control_mesh.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/rank_status.h>

#include "base/diagnoses.h"
#include "base/format.h"
#include "base/sockets.h"
#include "rendezvous/diagnosis.h"
#include "rendezvous/message.h"

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

constexpr auto kOrderlyEnding = std::chrono::milliseconds(200);

}  // namespace

void JobFailure::declare(Verdict verdict) {
  if (verdict_) return;
  const auto payload = to_payload(verdict);
  for (int rank = 0; rank < links_.size(); ++rank) {
    links_.send(rank, header_of(MessageKind::kVerdict, payload), payload, steady_clock::now());
  }
  verdict_ = std::move(verdict);
  declared_at_ = steady_clock::now();
  is_declared_ = true;
}

bool JobFailure::concerns(std::span<const int> ranks) const {
  const auto is_blamed = [&](int rank) {
    return std::ranges::find(verdict_->ranks, rank) != verdict_->ranks.end();
  };
  return verdict_ && std::ranges::any_of(ranks, is_blamed);
}

void JobFailure::raise(const std::string& where) const { rendezvous::raise(*verdict_, place_of(where)); }

std::string JobFailure::place_of(const std::string& where) const {
  return "rank " + std::to_string(rank_) + (where.empty() ? "" : ", in " + where);
}

JobFailure::Token JobFailure::on_failure(Abort abort) {
  auto token = std::make_shared<const Abort>(std::move(abort));
  std::erase_if(aborts_, [](const auto& each) { return each.expired(); });
  aborts_.push_back(token);
  return token;
}

std::vector<std::weak_ptr<const JobFailure::Abort>> JobFailure::take_due() {
  if (!verdict_ || aborts_.empty()) return {};
  // A collective that was agreed on before a rank left may still be finished.
  const bool is_due =
      verdict_->failure == Failure::kMismatch || steady_clock::now() >= declared_at_ + kOrderlyEnding;
  return is_due ? std::exchange(aborts_, {}) : std::vector<std::weak_ptr<const Abort>>();
}

namespace {

using Clock = std::chrono::steady_clock;

// The times at which a rank that waits for others in a meeting asks, tells of it and judges.
class WaitSchedule {
 public:
  /// The schedule of a wait that begins now.
  explicit WaitSchedule(Deadline deadline) : deadline_(deadline) {}

  /// Whether it is time to ask the missing ranks; with growing intervals.
  bool is_time_to_ask(Deadline now) {
    if (now < ask_at_) return false;
    pause_ = std::min(2 * pause_, kRareQuestions);
    ask_at_ = now + pause_;
    return true;
  }

  /// Whether it is time to say for whom it waits: once.
  bool is_time_to_tell(Deadline now) {
    if (now < tell_at_) return false;
    tell_at_ = Deadline::max();
    return true;
  }

  /// For how long it has waited.
  Clock::duration waited(Deadline now) const { return now - begin_; }

  /// Called while members are known to differ: whether the missing members have had a moment to arrive, too.
  /// A rank that does not decide waits as long again for the one that does.
  bool is_time_to_judge(Deadline now, bool decides) {
    differs_since_ = std::min(differs_since_, now);
    judge_at_ = std::min(differs_since_ + (decides ? kGrace : 2 * kGrace), deadline_);
    return now >= judge_at_;
  }

  /// How long the wait may sleep.
  Deadline next_step(Deadline now) const {
    return now < begin_ + kSpin ? now : std::min({ask_at_, tell_at_, judge_at_, deadline_});
  }

 private:
  using milliseconds = std::chrono::milliseconds;
  static constexpr auto kSpin = std::chrono::microseconds(50);  // sleeping and waking cost as much
  static constexpr auto kFirstQuestion = milliseconds(50);
  static constexpr auto kRareQuestions = milliseconds(1000);
  static constexpr auto kGrace = milliseconds(40);

  Deadline deadline_;
  Deadline begin_ = std::chrono::steady_clock::now();
  milliseconds pause_ = kFirstQuestion;
  Deadline ask_at_ = begin_ + pause_;
  Deadline differs_since_ = Deadline::max();
  Deadline judge_at_ = Deadline::max();
  Deadline tell_at_ = detail::diagnoses().waits ? begin_ + *detail::diagnoses().waits : Deadline::max();
};

using std::chrono::milliseconds;

constexpr auto kServicePeriod = milliseconds(10);

}  // namespace

ControlMesh::ControlMesh(int rank, std::vector<UniqueFd> connections, Words words)
    : rank_(rank),
      words_(std::move(words)),
      links_(std::move(connections)),
      meetings_(rank),
      by_hosts_(rank, links_, meetings_),
      failure_(rank, links_),
      diagnosis_(rank, links_, meetings_, words_),
      reader_(links_, [this](PeerLinks::Event event) { deliver(std::move(event)); }),
      service_([this](const std::stop_token& stop) { serve(stop); }) {}

ControlMesh::~ControlMesh() {
  service_.request_stop();
  service_.join();
}

// On the path of every collective: allocates nothing but memory for payloads, unless there is an error.
void ControlMesh::meet(const Meeting& meeting, const Take& take) {
  if (meeting.hosts) return meet_by_hosts(meeting, take);
  if (meeting.board) return meet_at_board(meeting, take);
  Lock lock(mutex_);
  const MeetingScope attendance(meetings_, meeting);
  lock.unlock();
  const auto header = header_of(MessageKind::kAnnounce, meeting.payload, meeting.announcement);
  for (const int member : meeting.members) links_.send(member, header, meeting.payload, meeting.deadline);
  lock.lock();
  await_members(lock, meeting);
  require_agreement(lock, meeting);
  auto& inbox = meetings_.inbox();
  const auto group = meeting.announcement.group;
  for (const int member : meeting.members) {
    if (member == rank_) continue;
    if (take) take(member, inbox.front(group, member)->payload);
    inbox.pop(group, member);
  }
  if (!meeting.keeps_group) inbox.trim(group);
}

// Without a lock as long as all goes well. Ranks that share memory could go on after the network between them
// has failed: then they would lose each other later, and elsewhere. A meeting that has begun may end, and so
// may those of others than the lost ones: at the end of a job some leave before others.
void ControlMesh::meet_at_board(const Meeting& meeting, const Take& take) {
  auto& board = *meeting.board;
  if (failure_.is_declared()) require_not_lost(meeting);
  board.show(meeting.announcement, meeting.payload);
  const auto is_agreed = [&] {
    return std::ranges::all_of(meeting.members, [&](int member) {
      return member == rank_ || *board.front(member) == meeting.announcement;
    });
  };
  if (!board.await_all() || !is_agreed()) await_board(meeting);
  if (!take) return;
  for (const int member : meeting.members)
    if (member != rank_) take(member, board.payload(member));
}

void ControlMesh::require_not_lost(const Meeting& meeting) {
  const Lock lock(mutex_);
  if (failure_.concerns(meeting.members)) failure_.raise(words_.describe(meeting.announcement));
}

void ControlMesh::await_board(const Meeting& meeting) {
  Lock lock(mutex_);
  const MeetingScope attendance(meetings_, meeting);
  await_members(lock, meeting);
  require_agreement(lock, meeting);
}

void ControlMesh::use_board(std::uint64_t group, const AnnouncementBoard& board) {
  const Lock lock(mutex_);
  meetings_.use_board(group, &board);
}

void ControlMesh::use_hosts(std::uint64_t group, const Hosts& hosts) {
  const Lock lock(mutex_);
  meetings_.use_board(group, hosts.board, &hosts);
  by_hosts_.open(group, hosts);
}

void ControlMesh::await_members(Lock& lock, const Meeting& meeting) {
  WaitSchedule schedule(meeting.deadline);
  while (!meetings_.is_complete(meeting)) {
    if (failure_.is_known()) failure_.raise(words_.describe(meeting.announcement));
    require_presence(meeting);
    if (meeting.caller && meeting.caller->has_given_up()) {
      throw CommError("comm", {.what = "the communicator is closed"});
    }
    const auto now = Clock::now();
    if (!meetings_.is_unanimous(meeting)) {
      const bool decides = meetings_.first_present(meeting) == rank_;
      if (schedule.is_time_to_judge(now, decides)) require_agreement(lock, meeting);
    } else if (now >= meeting.deadline) {
      give_up(lock, meeting);
    }
    if (schedule.is_time_to_ask(now)) diagnosis_.ask(meetings_.missing_from(meeting));
    if (schedule.is_time_to_tell(now) && meetings_.first_present(meeting) == rank_)
      tell_of_wait(lock, meeting, schedule.waited(now));
    wait_a_while(lock, meeting, schedule.next_step(now));
  }
}

// One of the members that wait tells it, with what the others say of themselves. A rank that the missing ones
// wait for in another group is to blame in their place.
void ControlMesh::tell_of_wait(Lock& lock, const Meeting& meeting, Clock::duration waited) {
  Inquiry inquiry(diagnosis_, meetings_.missing_from(meeting));
  await_answers(lock, inquiry, Deadline::min());
  const auto missing = meetings_.missing_from(meeting);
  if (missing.empty() || failure_.is_known()) return;
  const auto awaited = inquiry.ranks_to_blame(missing);
  const double exact = std::chrono::duration<double>(waited).count();
  const auto seconds = exact < 1 ? std::round(exact * 10) / 10 : std::round(exact);
  const auto text = "rank " + std::to_string(rank_) + " has waited for " + ranks_text(awaited) + " for " +
                    number_text(seconds) + " s, in " + words_.describe(meeting.announcement) + ": " +
                    inquiry.places_of(awaited) + "; training goes on when it comes, or ends at the timeout";
  if (give_notice(text)) return;
  lock.unlock();  // who reads the log may be slow
  log_warning(text);
  lock.lock();
}

// Messages come beside a board: about failures, and what others do.
void ControlMesh::wait_a_while(Lock& lock, const Meeting& meeting, Deadline end) {
  if (!meeting.board) return reader_.wait(lock, end);
  if (meeting.hosts) return wait_by_hosts(lock, meeting, end);
  lock.unlock();
  meeting.board->await_all();
  lock.lock();
  reader_.poll(lock);
}

// Members that have received the same headers produce the same text.
void ControlMesh::require_agreement(Lock& lock, const Meeting& meeting) {
  if (meetings_.is_unanimous(meeting)) return;
  reader_.catch_up(lock);  // an earlier failure may explain it
  fail(disagreement_in(meeting, meetings_, words_));
  failure_.raise(words_.describe(meeting.announcement));
}

// A rank that has said goodbye will not arrive any more. All members have received that, and each throws. One
// that left since it had waited in vain is not to blame: those that it waited for are, at the deadline.
void ControlMesh::require_presence(const Meeting& meeting) {
  const auto group = meeting.announcement.group;
  const auto& inbox = meetings_.inbox();
  for (const int member : meeting.members) {
    const bool has_left = diagnosis_.peer(member).has_left || inbox.has_left(group, member) ||
                          inbox.has_left(meeting.home, member);
    if (!has_left || meetings_.announced(meeting, member) || meetings_.has_given_up(meeting, member))
      continue;
    const auto rank = std::to_string(member);
    raise({.failure = Failure::kPeerLost,
           .ranks = {member},
           .parts = {.what = "rank " + rank + " left the group " + (meeting.is_again ? "within" : "before") +
                             " a collective of all",
                     .hint = "all ranks must call the same collectives before they close"}},
          failure_.place_of(words_.describe(meeting.announcement)));
  }
}

void ControlMesh::give_up(Lock& lock, const Meeting& meeting) {
  Inquiry inquiry(diagnosis_, meetings_.missing_from(meeting));
  await_answers(lock, inquiry, Deadline::min());
  require_presence(meeting);
  const auto missing = meetings_.absent_from(meeting);
  if (missing.empty() || failure_.is_known()) return;  // they arrived at the last moment
  const auto what = words_.describe(meeting.announcement);
  Verdict verdict{
      .failure = Failure::kTimeout,
      .ranks = meeting.fails_job ? inquiry.ranks_to_blame(missing) : missing,
      .parts = {.what = ranks_text(missing) + (meeting.is_again ? " did not finish " : " did not come to ") +
                        what + " in time",
                .got = inquiry.states(),
                .hint = meeting.fails_job ? "see option timeout" : "look at their output"}};
  if (meeting.fails_job) return fail(std::move(verdict));
  take_back(meeting);
  raise(verdict, failure_.place_of(what));
}

void ControlMesh::take_back(const Meeting& meeting) {
  const auto header = header_of(MessageKind::kRecall, {}, {.group = meeting.announcement.group});
  for (const int member : meeting.members) links_.send(member, header, {}, Clock::now());
}

void ControlMesh::await_answers(Lock& lock, Inquiry& inquiry, Deadline earliest) {
  while (!failure_.is_known() && (!inquiry.is_over() || Clock::now() < earliest)) {
    reader_.wait(lock, Clock::now() + kServicePeriod);
  }
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
  Inquiry inquiry(diagnosis_, members);
  await_answers(lock, inquiry, Clock::now() + patience);
  const auto silent = inquiry.silent();
  if (!silent.empty()) {
    fail({.failure = Failure::kTimeout,
          .ranks = silent,
          .parts = {.what = ranks_text(silent) + " did not finish a collective in time",
                    .got = inquiry.states(),
                    .hint = "see option timeout"}});
  }
  if (failure_.is_known()) failure_.raise(where);
}

ControlMesh::Token ControlMesh::on_failure(std::function<void()> abort) {
  const Lock lock(mutex_);
  return failure_.on_failure(std::move(abort));
}

void ControlMesh::say_goodbye(std::uint64_t group, std::span<const int> members) {
  {
    const Lock lock(mutex_);
    by_hosts_.tell_last(group);
  }
  const auto header = header_of(MessageKind::kGoodbye, {}, {.group = group});
  for (const int member : members) links_.send(member, header, {}, Clock::now());
}

void ControlMesh::leave(std::uint64_t group, std::span<const int> members) {
  const Lock lock(mutex_);
  by_hosts_.tell_last(group);
  by_hosts_.close(group);
  meetings_.use_board(group, nullptr);
  meetings_.inbox().leave(group, members);
}

void ControlMesh::leave() {
  for (int rank = 0; rank < size(); ++rank) {
    links_.send(rank, header_of(MessageKind::kGoodbye), {}, Clock::now());
  }
}

std::size_t ControlMesh::groups_kept() {
  const Lock lock(mutex_);
  return meetings_.inbox().size();
}

void ControlMesh::deliver(PeerLinks::Event event) {
  if (!event.message) return lose(event.rank);
  try {
    understand(event.rank, std::move(*event.message));
  } catch (const std::exception& error) {
    fail({.failure = Failure::kOther,
          .ranks = {event.rank},
          .parts = {.what = "rank " + std::to_string(event.rank) + " sent what is no message of this program",
                    .got = error.what(),
                    .hint = "all ranks must run the same version"}});
  }
}

void ControlMesh::understand(int rank, Message message) {
  const auto group = message.header.announcement.group;
  switch (message.header.kind) {
    case MessageKind::kAnnounce:
      return by_hosts_.receive(rank, std::move(message));
    case MessageKind::kBundle:
      return by_hosts_.unpack(group, message.payload);
    case MessageKind::kRecall:
      return note_recall(rank, group);
    case MessageKind::kSpent:
      return meetings_.inbox().drop(group, rank), void();
    case MessageKind::kWhere:
      diagnosis_.answer(rank);
      if (message.payload.empty()) return;
      if (auto verdict = diagnosis_.follow(trail_from(message.payload))) fail(std::move(*verdict));
      return;
    case MessageKind::kHere:
      return diagnosis_.note_answer(rank, whereabouts_from(message.payload));
    case MessageKind::kVerdict:
      return fail(verdict_from(message.payload));
    case MessageKind::kGoodbye:
      return note_goodbye(rank, group);
  }
}

// If the announcement is not here any more, it was met with; then the announcement of this rank was met with
// by `rank`, too, and is dropped there.
void ControlMesh::note_recall(int rank, std::uint64_t group) {
  if (meetings_.take_back(group, rank)) return;
  links_.send(rank, header_of(MessageKind::kSpent, {}, {.group = group}), {}, Clock::now());
}

void ControlMesh::note_goodbye(int rank, std::uint64_t group) {
  group != 0 ? meetings_.inbox().note_left(group, rank) : diagnosis_.note_goodbye(rank);
}

void ControlMesh::lose(int rank) {
  if (diagnosis_.peer(rank).has_left) return;
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
  ::pthread_setname_np(::pthread_self(), "ls_mesh");
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
