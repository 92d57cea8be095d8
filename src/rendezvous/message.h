// What travels between two ranks of the control mesh: a header of 64 bytes and, rarely, a payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::rendezvous {

/// What a rank is about to do together with others: enough of it to compare.
struct Announcement {
  std::uint64_t group = 0;              ///< names the group of ranks; the same number on all its members
  std::uint64_t sequence = 0;           ///< how many the group has done before
  std::array<std::byte, 40> what = {};  ///< for the caller to define; compared byte by byte

  bool operator==(const Announcement&) const = default;
};

enum class MessageKind : std::uint32_t {
  kAnnounce,  ///< an Announcement, perhaps with data
  kRecall,    ///< the sender no longer waits for what it announced in the group
  kSpent,     ///< to a recall that came too late: the receiver's announcement was met with, and so is mine
  kWhere,     ///< a question: what are you doing? Perhaps with a Trail
  kHere,      ///< its answer
  kVerdict,   ///< the job has failed, and why
  kGoodbye    ///< the sender leaves the group announced or, where that is 0, the job; all is well
};

/// Lies in memory as it travels: ranks of one job are of one architecture.
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

}  // namespace lockstep::rendezvous
