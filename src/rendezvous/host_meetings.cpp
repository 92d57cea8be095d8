#include "rendezvous/host_meetings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

constexpr auto kAnswerTime = std::chrono::milliseconds(100);  // in which the system takes a message

// How an announcement begins in a bundle; its payload follows.
struct Bundled {
  std::int32_t rank;
  std::uint32_t payload_bytes;
  Announcement announcement;
};

void add_to(std::string& bundle, int rank, const Announcement& announcement, std::string_view payload) {
  const Bundled head{.rank = rank,
                     .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                     .announcement = announcement};
  bundle.append(reinterpret_cast<const char*>(&head), sizeof head);
  bundle.append(payload);
}

// Takes `count` bytes from the begin of `bytes`.
std::string_view take_bytes(std::string_view& bytes, std::size_t count) {
  if (count > bytes.size()) throw std::length_error("a bundle of announcements that ends too early");
  const auto taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

bool is_among(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

}  // namespace

void HostMeetings::open(std::uint64_t group, const Hosts& hosts) {
  groups_.insert_or_assign(group, Group{.hosts = &hosts});
}

void HostMeetings::show(const Meeting& meeting) {
  auto& group = group_of(meeting);
  group.shown = meeting.announcement.sequence;
  auto& said = group.said_at(group.shown);
  said.announcement = meeting.announcement;
  said.payload = meeting.payload;
  said.told.clear();
  meeting.board->show(meeting.announcement, meeting.payload);
}

std::vector<int> HostMeetings::to_be_answered(const Meeting& meeting) {
  const auto& [id, sequence, what] = meeting.announcement;
  auto& told = group_of(meeting).said_at(sequence).told;
  std::vector<int> ranks;
  for (const int rank : meeting.hosts->elsewhere) {
    const auto* const theirs = meetings_.inbox().find(id, rank, sequence);
    if (theirs && !theirs->is_relayed && !is_among(told, rank)) ranks.push_back(rank);
  }
  told.insert(told.end(), ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> HostMeetings::to_be_told(const Meeting& meeting) {
  auto& told = group_of(meeting).said_at(meeting.announcement.sequence).told;
  auto ranks = meeting.hosts->elsewhere;
  std::erase_if(ranks, [&](int rank) { return is_among(told, rank); });
  told = meeting.hosts->elsewhere;
  return ranks;
}

void HostMeetings::tell_last(std::uint64_t group) {
  const auto found = groups_.find(group);
  if (found == groups_.end() || found->second.shown == 0) return;
  for (const int rank : found->second.hosts->elsewhere) answer(found->second, rank, found->second.shown);
}

void HostMeetings::send_bundle(const Meeting& meeting) {
  std::string bundle;
  add_to(bundle, rank_, meeting.announcement, meeting.payload);
  for (const int rank : meeting.hosts->here)
    if (rank != rank_) add_to(bundle, rank, *meeting.board->front(rank), meeting.board->payload(rank));
  const auto header = header_of(MessageKind::kBundle, bundle, meeting.announcement);
  for (const int rank : meeting.hosts->first_ranks) links_.send(rank, header, bundle, meeting.deadline);
}

void HostMeetings::take_relay(const Meeting& meeting) {
  if (meeting.hosts->is_first(rank_)) return;
  if (const auto bundle = meeting.hosts->board->relayed()) unpack(meeting.announcement.group, *bundle);
}

void HostMeetings::finish(const Meeting& meeting) {
  const auto& [id, sequence, what] = meeting.announcement;
  const auto& hosts = *meeting.hosts;
  if (hosts.is_first(rank_) && meeting.most_payload <= hosts.most_payload) {
    std::string bundle;
    for (const int rank : hosts.elsewhere)
      add_to(bundle, rank, meeting.announcement, meetings_.payload(meeting, rank));
    hosts.board->relay(bundle);
  }
  group_of(meeting).met = sequence;
}

void HostMeetings::receive(int rank, Message message) {
  const auto [id, sequence, what] = message.header.announcement;
  store(id, rank, std::move(message), /*is_relayed=*/false);
  if (const auto group = groups_.find(id); group != groups_.end()) answer(group->second, rank, sequence);
}

void HostMeetings::unpack(std::uint64_t group, std::string_view bundle) {
  while (!bundle.empty()) {
    Bundled head{};
    std::memcpy(&head, take_bytes(bundle, sizeof head).data(), sizeof head);
    const auto payload = take_bytes(bundle, head.payload_bytes);
    store(group, head.rank,
          {.header = header_of(MessageKind::kAnnounce, payload, head.announcement),
           .payload = std::string(payload)},
          /*is_relayed=*/true);
  }
}

// What this rank has met for has come in another way before.
void HostMeetings::store(std::uint64_t group, int rank, Message message, bool is_relayed) {
  const auto found = groups_.find(group);
  if (found != groups_.end() && message.header.announcement.sequence <= found->second.met) return;
  meetings_.inbox().push(rank, std::move(message), is_relayed);
}

void HostMeetings::answer(Group& group, int rank, std::uint64_t sequence) {
  auto& said = group.said_at(sequence);
  if (said.announcement.sequence != sequence || is_among(said.told, rank)) return;
  said.told.push_back(rank);
  send(said, rank);
}

void HostMeetings::send(const Said& said, int rank) {
  links_.send(rank, header_of(MessageKind::kAnnounce, said.payload, said.announcement), said.payload,
              steady_clock::now() + kAnswerTime);
}

}  // namespace lockstep::rendezvous
