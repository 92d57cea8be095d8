#include "comm/shared_memory/segment_board.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

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

}  // namespace

void SegmentBoard::show(const Announcement& announcement, std::string_view payload) {
  if (payload.size() > kMostPayload)
    throw std::length_error("an announcement brings " + std::to_string(payload.size()) + " bytes along");
  const auto number = shown_.load(std::memory_order_relaxed) + 1;
  shown_.store(number, std::memory_order_relaxed);
  auto& own = shown_at(segments_.announcement(segments_.rank(), number));
  own.announcement = announcement;
  own.payload_bytes = payload.size();
  std::memcpy(own.payload, payload.data(), payload.size());
  post(segments_.announced(segments_.rank()), number);
}

const Announcement* SegmentBoard::front(int rank) const {
  const int member = member_of(rank);
  const auto number = shown_.load(std::memory_order_relaxed);
  if (!has_come_to(segments_.announced(member), number)) return nullptr;
  return &shown_at(segments_.announcement(member, number)).announcement;
}

std::string_view SegmentBoard::payload(int rank) const {
  const auto& shown =
      shown_at(segments_.announcement(member_of(rank), shown_.load(std::memory_order_relaxed)));
  return {shown.payload, std::min(shown.payload_bytes, std::uint64_t{kMostPayload})};
}

bool SegmentBoard::await_all() {
  const auto number = shown_.load(std::memory_order_relaxed);
  for (int member = 0; member < segments_.size(); ++member) {
    if (member == segments_.rank()) continue;
    auto& flag = segments_.announced(member);
    if (!spin_until(flag, number) && !sleep_until(flag, number)) return false;
  }
  return true;
}

bool SegmentBoard::is_ahead(int rank) const {
  return has_come_to(segments_.announced(member_of(rank)), shown_.load(std::memory_order_relaxed) + 1);
}

int SegmentBoard::member_of(int rank) const {
  return static_cast<int>(std::ranges::find(ranks_, rank) - ranks_.begin());
}

}  // namespace lockstep::detail
