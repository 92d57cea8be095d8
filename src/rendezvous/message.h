// The messages between two ranks of the control mesh, a header of 64 bytes and, rarely, a payload; and the
// verdict on a job that has failed, which some of them bring.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep::rendezvous {

/// What a rank is about to do with others, in a form that can be compared.
struct Announcement {
  std::uint64_t group = 0;              ///< names the group of ranks; the same number on all its members
  std::uint64_t sequence = 0;           ///< the number of announcements of the group before
  std::array<std::byte, 40> what = {};  ///< for the caller to define; compared byte by byte

  bool operator==(const Announcement&) const = default;
};

enum class MessageKind : std::uint32_t {
  kAnnounce,  ///< an Announcement, perhaps with data
  kBundle,    ///< those of all ranks of the sender's host, in the announced group
  kRecall,    ///< the sender recalls its announcement in the group
  kSpent,     ///< answers a recall that came too late: both announcements were met with
  kWhere,     ///< asks what the receiver is doing, possibly with a Trail
  kHere,      ///< the answer to kWhere
  kVerdict,   ///< the job has failed, and why
  kGoodbye    ///< the sender leaves the announced group or, where that is 0, the job, without a failure
};

/// Sent as it lies in memory: the ranks of a job have the same architecture.
struct Header {
  MessageKind kind = MessageKind::kAnnounce;
  std::uint32_t payload_bytes = 0;
  Announcement announcement = {};
};
static_assert(sizeof(Header) == 64);

inline Header header_of(MessageKind kind, std::string_view payload = {},
                        const Announcement& announcement = {}) {
  return {.kind = kind,
          .payload_bytes = static_cast<std::uint32_t>(payload.size()),
          .announcement = announcement};
}

struct Message {
  Header header;
  std::string payload;
};

// Lists of ranks as text.

/// "0, 2".
inline std::string joined(std::span<const int> ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

/// "rank 2", "ranks 0, 2".
inline std::string ranks_text(std::span<const int> ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + joined(ranks);
}

enum class Failure { kPeerLost, kTimeout, kMismatch, kOther };

struct Verdict {
  Failure failure = Failure::kPeerLost;
  std::vector<int> ranks = {};  ///< the ranks that it is about
  ErrorParts parts = {};        ///< `where` is not sent: each rank has its own
};

/// Throws PeerLost, Timeout, CollectiveMismatch or CommError.
[[noreturn]] LOCKSTEP_API void raise(const Verdict& verdict, const std::string& where = {});

LOCKSTEP_API std::string to_payload(const Verdict& verdict);
LOCKSTEP_API Verdict verdict_from(std::string_view payload);

}  // namespace lockstep::rendezvous
