// The client's side of a connection with a frame server.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "rendezvous/frames.h"
#include "rendezvous/tcp_endpoint.h"

namespace lockstep::rendezvous {

/// Why there is no connection.
struct LinkFailure {
  std::string text;
  bool is_final = false;    ///< another attempt would fail, too: no server of ours, or another key
  bool is_foreign = false;  ///< another program listens there
};

/// A connection on which both sides have shown that they know the key. Not thread-safe.
class LOCKSTEP_API FrameLink {
 public:
  /// Connects, once. Blocks until `deadline` at most.
  static Expected<FrameLink, LinkFailure> connect(const TcpEndpoint& endpoint, const std::string& key,
                                                  Deadline deadline);

  /// Sends a message. Blocks while the server does not read, until `deadline` at most.
  /// @returns why it could not be sent; the link is broken then
  Expected<void> send(std::string_view payload, Deadline deadline);

  /// The next message, for which it waits until `deadline`; nothing when it passed.
  /// @returns an error when the connection is closed
  Expected<std::optional<std::string>> receive(Deadline deadline);

  /// Says that nothing more will be sent, and waits until the server has closed the connection: then it has
  /// read all. Blocks until `deadline` at most.
  void finish(Deadline deadline);

  int fd() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.reset(); }

 private:
  explicit FrameLink(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
  FrameBuffer arrived_;
};

}  // namespace lockstep::rendezvous
