// This rank's connections with all others, read together.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rendezvous/connection.h"

namespace lockstep::rendezvous {

class PeerLinks {
 public:
  /// Takes over connected sockets, by rank; none at the own place.
  explicit PeerLinks(std::vector<UniqueFd> sockets);

  int size() const { return static_cast<int>(links_.size()); }

  /// Sends to `rank`, from any thread; does nothing for the own rank and for lost ones.
  void send(int rank, const Header& header, std::string_view payload, Deadline deadline);

  /// Something that arrived: a message or, if there is none, the end of the connection.
  struct Event {
    int rank = 0;
    std::optional<Message> message;
  };

  /// Appends what has arrived to `events`; blocks until there is something, or `until`. One thread at a time.
  void read(Deadline until, std::vector<Event>& events);

 private:
  std::vector<std::unique_ptr<Connection>> links_;
  std::vector<pollfd> polled_;  // by rank; fd -1: not, or no more
  std::vector<Message> messages_;
};

}  // namespace lockstep::rendezvous
