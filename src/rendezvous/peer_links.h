// The connections of this rank with all others: they are cut into messages, and read together.
#pragma once

#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "rendezvous/message.h"

namespace lockstep::rendezvous {

class Connection {
 public:
  /// Takes over a connected, non-blocking socket.
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  /// Sends one complete message, from any thread. False where it could not be sent by `deadline`, or the
  /// connection is broken, which the reader reports.
  bool send(const Header& header, std::string_view payload, Deadline deadline);

  /// Appends the messages that have arrived to `messages`; never blocks. One thread at a time.
  /// False once the connection has ended.
  bool receive(std::vector<Message>& messages);

 private:
  UniqueFd socket_;
  std::mutex sending_;  // held while a message is sent
  std::string unparsed_;
};

class LOCKSTEP_API PeerLinks {
 public:
  /// Takes over connected sockets, by rank; none at the own place.
  explicit PeerLinks(std::vector<UniqueFd> sockets);

  int size() const { return static_cast<int>(links_.size()); }

  /// Sends to `rank`, from any thread; does nothing for the own rank and for lost ones.
  void send(int rank, const Header& header, std::string_view payload, Deadline deadline);

  /// An event of a connection: a message or, if there is none, the end of the connection.
  struct Event {
    int rank = 0;
    std::optional<Message> message;
  };

  /// Appends what has arrived to `events`; blocks until there is something, or `until`. One thread at a time.
  void read(Deadline until, std::vector<Event>& events);

 private:
  std::vector<std::unique_ptr<Connection>> links_;
  std::vector<pollfd> polled_;  // by rank; fd is -1 for this rank and for lost ones
  std::vector<Message> messages_;
};

/// Lets one of the threads that wait read for all of them. All functions are called with the lock held that
/// guards this object; it is released while a thread reads or sleeps.
class MeshReader {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using Deliver = std::function<void(PeerLinks::Event)>;

  /// `deliver` is called with each event, under the lock. It must not throw.
  MeshReader(PeerLinks& links, Deliver deliver) : links_(links), deliver_(std::move(deliver)) {}

  /// Returns when something has arrived or wake() was called; after 50 ms or at `until` in any case.
  void wait(Lock& lock, Deadline until);

  /// Delivers what has arrived by now, unless another thread is reading.
  void poll(Lock& lock);

  /// Delivers all that had arrived when it was called; waits for another thread that is reading.
  void catch_up(Lock& lock);

  /// Wakes all threads that sleep in wait().
  void wake() { changed_.notify_all(); }

 private:
  void read(Lock& lock, Deadline until);

  PeerLinks& links_;
  Deliver deliver_;
  std::condition_variable changed_;
  bool is_reading_ = false;               // a thread is in links_.read()
  std::vector<PeerLinks::Event> events_;  // empty; room for those of the next turn
};

}  // namespace lockstep::rendezvous
