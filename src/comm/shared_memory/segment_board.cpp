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

}  // namespace lockstep::detail
