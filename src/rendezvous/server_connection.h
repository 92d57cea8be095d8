// One client of a frame server. Nothing here blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "rendezvous/authentication.h"
#include "rendezvous/frames.h"

namespace lockstep::rendezvous {

/// A connection that the server has accepted, first of a stranger, then of somebody who knows the key.
class LOCKSTEP_API ServerConnection {
 public:
  /// Says the greeting. Notes its id in `changed` when it breaks or waits for something else than before.
  /// Both references must outlive this.
  ServerConnection(std::uint64_t id, UniqueFd socket, const std::string& key,
                   std::set<std::uint64_t>& changed);

  std::uint64_t id() const { return id_; }
  int fd() const { return socket_.get(); }
  bool is_trusted() const { return is_trusted_; }
  /// Closed by the other side, or not worth keeping.
  bool is_broken() const { return is_broken_; }
  void give_up();
  /// Gives up a stranger, and tells it why: others need its place.
  void turn_away(std::string_view why);
  /// A stranger that has sent nothing so far.
  bool is_silent() const { return !is_trusted_ && answer_.empty(); }

  /// Takes in some of what has arrived, not all, so that nobody takes the server's time alone.
  void receive();
  /// The next message of somebody trusted; none while many answers wait to be read.
  std::optional<std::string> next_message();
  /// Sends a message, as far as the other side reads; the rest with later calls of flush().
  void send(std::string_view payload);
  void flush();

  /// poll()'s events that this waits for: it is not read from while it does not read.
  bool wants_to_read() const;
  bool wants_to_write() const { return sent_ < unsent_.size(); }

  /// Its address as the other side is seen, and whether it is one of this machine's.
  std::string peer_address() const;
  bool is_local() const;

 private:
  void check_proof();
  void refuse(Welcome how, std::string_view why);
  void queue(std::string_view bytes);

  std::uint64_t id_;
  UniqueFd socket_;
  const std::string& key_;
  std::set<std::uint64_t>& changed_;
  std::string challenge_;
  std::string answer_;  ///< of a stranger, so far
  FrameBuffer arrived_;
  std::string unsent_;
  std::size_t sent_ = 0;  ///< bytes of unsent_ that are gone
  bool is_trusted_ = false;
  bool is_broken_ = false;
};

}  // namespace lockstep::rendezvous
