// The segments of a group's members, as each of them has mapped all: flags, and slots through which
// announcements and, in chunks, tensors pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <c10/util/FunctionRef.h>

#include <lockstep/base/export.h>

#include "comm/shared_memory/chunk_protocol.h"
#include "comm/shared_memory/flag.h"
#include "comm/shared_memory/segment.h"

namespace lockstep::detail {

class Transport;

/// Bytes of a slot: as many chunks as there are slots stay in a core's second-level cache.
inline constexpr std::size_t kSlotBytes = 256 << 10;

/// Bytes of an announcement with its payload, at most.
inline constexpr std::size_t kAnnouncementBytes = 20 << 10;

/// Not thread-safe, but for the announcements. When a slot may be used says ChunkProtocol.
class LOCKSTEP_API GroupSegments : public ChunkProtocol<GroupSegments> {
 public:
  /// Of chunks, on each member. Sums need three: with fewer a slot would be written that another rank still
  /// reads, which the model of tests/comm/model/ finds.
  static constexpr std::uint64_t kSlots = 4;

  /// Waits on for a member that is late: returns when its `flag` has come to `value`. @throws when it will
  /// not
  using AwaitLate = c10::function_ref<void(int member, Flag& flag, std::uint64_t value)>;

  /// `members` are those of the group by rank, the one of this rank included.
  GroupSegments(std::vector<SharedSegment> members, std::vector<SegmentAddress> addresses, int rank)
      : ChunkProtocol(static_cast<int>(members.size())),
        members_(std::move(members)),
        addresses_(std::move(addresses)),
        rank_(rank) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  /// Whether the process of member `member` is gone, or has left the group. Asks the system.
  bool has_left(int member) const { return is_gone(addresses_[static_cast<std::size_t>(member)]); }

  /// Where member `member` stages chunk number `chunk`.
  std::byte* slot(int member, std::uint64_t chunk) const {
    return segment(member) + kSlotsBegin + chunk % kSlots * kSlotBytes;
  }
  static constexpr std::size_t slot_bytes() { return kSlotBytes; }

  /// Copies into a slot, and out of one.
  static void put(std::byte* slot, const std::byte* from, std::size_t bytes) {
    std::memcpy(slot, from, bytes);
  }
  static void get(std::byte* to, const std::byte* slot, std::size_t bytes) { std::memcpy(to, slot, bytes); }
  /// Copies out of it, and leaves each line written. Block by block: a line is in the first-level cache when
  /// it is written.
  static void take(std::byte* to, std::byte* slot, std::size_t bytes);

  /// How many announcements `member` has shown.
  Flag& announced(int member) const { return flags(member).announced; }
  /// Where it shows number `number`.
  std::byte* announcement(int member, std::uint64_t number) const {
    return segment(member) + kAnnouncementsBegin + number % 2 * kAnnouncementBytes;
  }

  /// What the first member has passed on so far: the number of the announcement that it went with; and where.
  Flag& relayed() const { return flags(0).relayed; }
  std::byte* relay() const { return segment(0) + kRelayBegin; }
  static constexpr std::size_t relay_bytes() { return kSegmentBytes - kRelayBegin; }

  /// The last chunk that `member` has staged, and finished.
  Flag& staged(int member) const { return flags(member).staged; }
  Flag& finished(int member) const { return flags(member).finished; }

 private:
  // At the beginning of a segment, behind its seal. Written by its own rank alone.
  struct Flags {
    Flag announced, staged, finished, relayed;
  };
  static constexpr std::size_t kFlagsBegin = alignof(Flag);
  static constexpr std::size_t kAnnouncementsBegin = 4 << 10;
  static constexpr std::size_t kSlotsBegin = 64 << 10;
  static constexpr std::size_t kRelayBegin = kSlotsBegin + kSlots * kSlotBytes;
  static_assert(kFlagsBegin + sizeof(Flags) <= kAnnouncementsBegin);
  static_assert(kAnnouncementsBegin + 2 * kAnnouncementBytes <= kSlotsBegin);
  static_assert(kRelayBegin < kSegmentBytes);

  std::byte* segment(int member) const { return members_[static_cast<std::size_t>(member)].data(); }
  Flags& flags(int member) const { return *reinterpret_cast<Flags*>(segment(member) + kFlagsBegin); }

  std::vector<SharedSegment> members_;
  std::vector<SegmentAddress> addresses_;
  int rank_;
};

/// The segments of the members of a group that are on this rank's host.
struct HostSegments {
  std::unique_ptr<GroupSegments> segments = {};  ///< null: there are none
  int first = 0;                                 ///< its lowest member; the others follow

  /// Whether all members of a group of `size` are there.
  bool are_of_all(int size) const { return segments && segments->size() == size; }
};

/// Opens the segments of the ranks of this host, of those that `transport` connects, if the ranks of all
/// hosts can open theirs. Where there are several hosts, only if the ranks of each follow each other and are
/// equally many, 2^k: then they are nodes of the tree of ordered sums. Collective, blocking. There are
/// segments on all ranks, or on none.
LOCKSTEP_API HostSegments open_segments(Transport& transport);

/// How many members each host has, by the machines of all members; 0 where that is not as it says above.
LOCKSTEP_API int members_of_each_host(std::span<const std::uint64_t> machines);

}  // namespace lockstep::detail
