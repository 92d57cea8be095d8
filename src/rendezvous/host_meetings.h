// Meetings of members on several hosts, whose ranks share a board each: between hosts once for each of them.
//
// The first rank of a host sends the announcements of all its ranks to the first ranks of the other hosts, in
// one message, and passes on to its own host, on the board, what it gets from these. So a meeting takes
// hosts - 1 messages of one rank, and none of the others.
//
// A rank that does not come by all announcements so within 10 ms, or finds that some differ, tells all ranks
// of other hosts itself; and who gets that tells its own announcement to that rank, at once or as soon as it
// has one. So each two ranks that are there know of each other whatever has become of the first ranks, and
// who is missing, or differs, is named as where all announcements are messages. What comes twice has a number
// by which it is known. Before a rank says goodbye it has told its last announcement: nobody takes it for one
// that left without it.
//
// Nobody waits for ever: each wait for a board or a first rank has its end, after which a rank waits only for
// messages that each member sends when it is asked, whatever it waits for itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <lockstep/base/export.h>

#include "rendezvous/meetings.h"
#include "rendezvous/message.h"
#include "rendezvous/peer_links.h"

namespace lockstep::rendezvous {

/// What a rank has announced in such groups, whom it has told of it itself, and what others tell. Not
/// thread-safe, but for send_bundle().
class LOCKSTEP_API HostMeetings {
 public:
  /// Of rank `rank`. Borrows the others.
  HostMeetings(int rank, PeerLinks& links, Meetings& meetings)
      : rank_(rank), links_(links), meetings_(meetings) {}

  /// From now on the members of `group` meet so. Borrows `hosts` until close().
  void open(std::uint64_t group, const Hosts& hosts);
  void close(std::uint64_t group) { groups_.erase(group); }

  /// Shows the announcement on the board.
  void show(const Meeting& meeting);
  /// The ranks of other hosts that have told theirs themselves, and have not been told this rank's, which
  /// they are from now on: the caller sends it.
  std::vector<int> to_be_answered(const Meeting& meeting);
  /// All ranks of other hosts that have not been told; likewise.
  std::vector<int> to_be_told(const Meeting& meeting);
  /// Tells its last announcement of `group` to all that have not been told. For a rank that leaves.
  void tell_last(std::uint64_t group);

  /// For a first rank, all ranks of whose host have shown theirs: sends these to the other first ranks.
  void send_bundle(const Meeting& meeting);
  /// For other ranks: takes what the first one has passed on, if it has.
  void take_relay(const Meeting& meeting);
  /// When all have announced the same. A first rank passes on to its host what came from others.
  void finish(const Meeting& meeting);

  /// An announcement that came from `rank` itself, of any group. It is answered if that is due.
  void receive(int rank, Message message);
  /// Those of a host, or of several.
  void unpack(std::uint64_t group, std::string_view bundle);

 private:
  struct Said {
    Announcement announcement = {};
    std::string payload = {};
    std::vector<int> told = {};  // ranks of other hosts
  };
  struct Group {
    const Hosts* hosts;
    std::array<Said, 2> said = {};  // the last two, by their number: no member waits for an earlier one
    std::uint64_t shown = 0, met = 0;

    Said& said_at(std::uint64_t sequence) { return said[sequence % 2]; }
  };

  Group& group_of(const Meeting& meeting) { return groups_.at(meeting.announcement.group); }
  void store(std::uint64_t group, int rank, Message message, bool is_relayed);
  void answer(Group& group, int rank, std::uint64_t sequence);
  void send(const Said& said, int rank);

  int rank_;
  PeerLinks& links_;
  Meetings& meetings_;
  std::unordered_map<std::uint64_t, Group> groups_;
};

}  // namespace lockstep::rendezvous
