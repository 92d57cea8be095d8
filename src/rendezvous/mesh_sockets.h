// The connections between all ranks of a job: every rank listens, and connects to ("calls") the ranks below
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"

namespace lockstep::rendezvous {

// The endpoints at which ranks can be called.

/// The address and port at which a rank can be called.
struct Endpoint {
  std::string host;  ///< a numeric address
  int port = 0;
};

/// Waits for calls of other ranks.
class LOCKSTEP_API MeshListener {
 public:
  /// Listens on a free port of the interface that leads to `main_address`, or of the one named `interface`.
  /// @throws CommError
  explicit MeshListener(const std::string& main_address, const std::string& interface = {});

  const Endpoint& endpoint() const { return endpoint_; }
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  Endpoint endpoint_;
};

/// The first message of a caller, and the answer of the called rank. A program that does not know the token
/// is no rank of this job.
struct Hello {
  std::uint64_t magic = 0x31'48'53'4d'2d'4b'53'4c;  // "LSK-MSH1"
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::uint64_t token = 0;
};

/// Connects `own` rank with every other one; `endpoints` are by rank. Collective, blocking.
/// @returns connections by rank; none at its own place
/// @throws Timeout naming the ranks that could not be reached or did not call; CommError when this process
/// can
///   open no more connections, or soon after `stop`
LOCKSTEP_API std::vector<UniqueFd> connect_mesh(const MeshListener& listener, const Hello& own,
                                                std::span<const Endpoint> endpoints, Deadline deadline,
                                                const std::stop_token& stop = {});

// Callers that have not sent their Hello yet. All are read together, so that a silent one delays nobody.

/// Sends a hello; false when the connection is broken.
bool say(int fd, const Hello& hello);

/// A Hello that is being received.
class Greeting {
 public:
  enum State { kUnfinished, kWelcome, kStranger };

  /// Accepts ranks of the job of `own`.
  explicit Greeting(const Hello& own) : own_(own) {}

  /// Reads what has arrived; does not block.
  void read(int fd);
  State state() const { return state_; }
  const Hello& hello() const { return hello_; }

 private:
  Hello own_;
  Hello hello_ = {};
  std::size_t got_ = 0;
  State state_ = kUnfinished;
};

class PendingCallers {
 public:
  /// Callers come from `listener`, a listening socket that does not block and outlives this.
  PendingCallers(int listener, const Hello& own) : listener_(listener), own_(own) {}

  struct Caller {
    std::uint32_t rank = 0;
    UniqueFd connection;
  };

  /// Waits until something arrives, or `deadline`. Returns the ranks above this one that have sent their
  /// Hello and were answered; strangers and callers that are silent for too long are closed.
  /// @throws CommError when the process can accept no more connections
  std::vector<Caller> welcome(Deadline deadline);

 private:
  struct PendingCaller {
    UniqueFd connection;
    Greeting greeting;
    Deadline leaves_at;
  };

  void accept_all();
  std::vector<Caller> take_ranks();

  int listener_;
  Hello own_;
  std::list<PendingCaller> callers_;  // by arrival
};

}  // namespace lockstep::rendezvous
