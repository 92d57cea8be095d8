// Callers that have not said yet who they are, all heard together: one that says nothing holds up nobody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "rendezvous/mesh_sockets.h"

namespace lockstep::rendezvous {

/// Sends a hello; false when the connection is broken.
bool say(int fd, const Hello& hello);

/// A hello that arrives.
class Greeting {
 public:
  enum State { kUnfinished, kWelcome, kStranger };

  /// `own` job's ranks are welcome.
  explicit Greeting(const Hello& own) : own_(own) {}

  /// Takes in what has arrived; does not block.
  void read(int fd);
  State state() const { return state_; }
  const Hello& hello() const { return hello_; }

 private:
  Hello own_;
  Hello hello_ = {};
  std::size_t got_ = 0;
  State state_ = kUnfinished;
};

class Reception {
 public:
  /// Callers come from `listener`, a listening socket that does not block and outlives this.
  Reception(int listener, const Hello& own) : listener_(listener), own_(own) {}

  struct Caller {
    std::uint32_t rank = 0;
    UniqueFd connection;
  };

  /// Waits until something arrives, or `deadline`. Returns the ranks above this one that have said hello and
  /// were answered; strangers, and those who say nothing for long, are turned away.
  /// @throws CommError when the process can accept no more connections
  std::vector<Caller> welcome(Deadline deadline);

 private:
  struct Guest {
    UniqueFd connection;
    Greeting greeting;
    Deadline leaves_at;
  };

  void accept_all();
  std::vector<Caller> take_ranks();

  int listener_;
  Hello own_;
  std::list<Guest> guests_;  // by arrival
};

}  // namespace lockstep::rendezvous
