// A meeting of members on several hosts, as the mesh goes through it; host_meetings.h says how they meet.
#include <algorithm>
#include <chrono>

#include "rendezvous/control_mesh.h"

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

constexpr auto kMoment = std::chrono::milliseconds(10);        // until ranks tell each other themselves
constexpr auto kSpinForHosts = std::chrono::microseconds(50);  // sleeping and waking cost as much

}  // namespace

void ControlMesh::meet_by_hosts(const Meeting& meeting, const Take& take) {
  Lock lock(mutex_);
  const MeetingScope attendance(meetings_, meeting);
  reader_.poll(lock);  // who came before this rank may have told it already, and waits for its answer
  if (failure_.concerns(meeting.members)) failure_.raise(words_.describe(meeting.announcement));
  by_hosts_.show(meeting);
  tell(lock, meeting, by_hosts_.to_be_answered(meeting));
  if (!has_met_by_hosts(lock, meeting)) {
    tell(lock, meeting, by_hosts_.to_be_told(meeting));
    await_members(lock, meeting);
    require_agreement(lock, meeting);
  }
  by_hosts_.finish(meeting);
  for (const int member : meeting.members) {
    if (member == rank_) continue;
    if (take) take(member, meetings_.payload(meeting, member));
    if (!meeting.hosts->is_here(member))
      meetings_.inbox().drop_up_to(meeting.announcement.group, member, meeting.announcement.sequence);
  }
}

void ControlMesh::tell(Lock& lock, const Meeting& meeting, const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  lock.unlock();
  const auto header = header_of(MessageKind::kAnnounce, meeting.payload, meeting.announcement);
  for (const int rank : ranks) links_.send(rank, header, meeting.payload, meeting.deadline);
  lock.lock();
}

// Whether all is well, and in time.
bool ControlMesh::has_met_by_hosts(Lock& lock, const Meeting& meeting) {
  const auto& hosts = *meeting.hosts;
  if (meeting.most_payload > hosts.most_payload) return false;
  if (hosts.is_first(rank_)) {
    collect(lock, meeting);
  } else if (!meetings_.is_complete(meeting)) {
    lock.unlock();
    hosts.board->await_relay();
    lock.lock();
    by_hosts_.take_relay(meeting);
  }
  return meetings_.is_complete(meeting) && meetings_.is_unanimous(meeting);
}

// The first rank's part: what its host announces goes to the others, and theirs comes here.
void ControlMesh::collect(Lock& lock, const Meeting& meeting) {
  lock.unlock();
  const bool are_all_here = meeting.board->await_all();
  if (are_all_here) by_hosts_.send_bundle(meeting);
  lock.lock();
  if (!are_all_here) return;
  const auto begin = steady_clock::now(), end = begin + kMoment;
  for (auto now = begin; now < end && !meetings_.is_complete(meeting) && !failure_.is_known();
       now = steady_clock::now())
    reader_.wait(lock, now < begin + kSpinForHosts ? now : end);
}

// Of what may come, messages wake this rank; the board does only while a rank of this host is missing.
void ControlMesh::wait_by_hosts(Lock& lock, const Meeting& meeting, Deadline end) {
  const bool are_all_here = std::ranges::all_of(
      meeting.hosts->here, [&](int member) { return meetings_.announced(meeting, member) != nullptr; });
  if (are_all_here) {
    reader_.wait(lock, std::min(end, steady_clock::now() + kMoment));
  } else {
    lock.unlock();
    meeting.board->await_all();
    lock.lock();
    reader_.poll(lock);
  }
  by_hosts_.take_relay(meeting);
}

}  // namespace lockstep::rendezvous
