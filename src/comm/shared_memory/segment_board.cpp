#include "comm/shared_memory/segment_board.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace lockstep::detail {
namespace {

using rendezvous::Announcement;

// As an announcement lies in a segment.
struct Shown {
  Announcement announcement;
  std::uint64_t payload_bytes;
  char payload[SegmentBoard::kMostPayload];
};
static_assert(sizeof(Shown) <= kAnnouncementBytes);

Shown& shown_at(std::byte* place) { return *reinterpret_cast<Shown*>(place); }

// As what is passed on does. Its bytes follow.
struct Relayed {
  std::uint64_t bytes;
};

Relayed& relayed_at(std::byte* place) { return *reinterpret_cast<Relayed*>(place); }

}  // namespace

void SegmentBoard::show(const Announcement& announcement, std::string_view payload) {
  if (payload.size() > kMostPayload)
    throw std::length_error("an announcement brings " + std::to_string(payload.size()) + " bytes along");
  board_.show([&](std::byte* place) {
    auto& own = shown_at(place);
    own.announcement = announcement;
    own.payload_bytes = payload.size();
    payload.copy(own.payload, payload.size());
  });
}

const Announcement* SegmentBoard::front(int rank) const {
  const int member = member_of(rank);
  return board_.has_shown(member) ? &shown_at(board_.place(member)).announcement : nullptr;
}

std::string_view SegmentBoard::payload(int rank) const {
  const auto& shown = shown_at(board_.place(member_of(rank)));
  return {shown.payload, std::min(shown.payload_bytes, std::uint64_t{kMostPayload})};
}

bool SegmentBoard::await_all() { return board_.await_all(); }

bool SegmentBoard::is_ahead(int rank) const { return board_.has_shown(member_of(rank), 1); }

std::size_t SegmentBoard::most_relayed() { return GroupSegments::relay_bytes() - sizeof(Relayed); }

void SegmentBoard::relay(std::string_view bytes) {
  if (bytes.size() > most_relayed())
    throw std::length_error("announcements of other hosts have " + std::to_string(bytes.size()) + " bytes");
  board_.relay([&](std::byte* place) {
    relayed_at(place).bytes = bytes.size();
    std::memcpy(place + sizeof(Relayed), bytes.data(), bytes.size());
  });
}

bool SegmentBoard::await_relay() { return board_.await_relay(); }

std::optional<std::string_view> SegmentBoard::relayed() const {
  if (!board_.has_relayed()) return std::nullopt;
  auto* const place = segments_.relay();
  return std::string_view(reinterpret_cast<const char*>(place) + sizeof(Relayed),
                          std::min<std::uint64_t>(relayed_at(place).bytes, most_relayed()));
}

int SegmentBoard::member_of(int rank) const {
  return static_cast<int>(std::ranges::find(ranks_, rank) - ranks_.begin());
}

namespace {

constexpr std::size_t kMostByHosts = 1024;      // ranks
constexpr std::size_t kBesidePayload = 80;      // bytes of an announcement, where it is passed on
constexpr std::size_t kMostOfAHost = 68 << 10;  // bytes of its announcements: four of the largest

}  // namespace

// The ranks of each host follow each other, and are equally many.
rendezvous::Hosts hosts_of(const HostSegments& host, std::span<const int> ranks) {
  rendezvous::Hosts hosts;
  const auto members = static_cast<std::size_t>(host.segments->size());
  const auto first = static_cast<std::size_t>(host.first);
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    const bool is_here = member / members == first / members;
    (is_here ? hosts.here : hosts.elsewhere).push_back(ranks[member]);
    if (!is_here && member % members == 0) hosts.first_ranks.push_back(ranks[member]);
  }
  const auto most = std::min(kMostOfAHost / members,
                             SegmentBoard::most_relayed() / std::max<std::size_t>(1, hosts.elsewhere.size()));
  hosts.most_payload = std::max(most, kBesidePayload) - kBesidePayload;
  return hosts;
}

bool may_announce_by_hosts(const rendezvous::Hosts& hosts) {
  return hosts.here.size() + hosts.elsewhere.size() <= kMostByHosts;
}

}  // namespace lockstep::detail
