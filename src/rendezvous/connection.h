// One TCP connection between two ranks, cut into messages.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "rendezvous/message.h"

namespace lockstep::rendezvous {

class Connection {
 public:
  /// Takes over a connected, non-blocking socket.
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  /// Sends one message whole, from any thread. False when it could not be sent by `deadline`, or the
  /// connection is broken: the reader learns why.
  bool send(const Header& header, std::string_view payload, Deadline deadline);

  /// Appends the messages that have arrived to `messages`; never blocks. One thread at a time.
  /// False once the connection has ended.
  bool receive(std::vector<Message>& messages);

 private:
  UniqueFd socket_;
  std::mutex sending_;  // messages are sent whole
  std::string unparsed_;
};

}  // namespace lockstep::rendezvous
