// A server of messages over TCP for those who know a key: one thread, sockets that never block.
//
// A client can be silent, slow, hostile or many: whoever has not shown the key within two seconds is turned
// away, so is one of too many such strangers, first those who have said nothing yet; reads are small and go
// round, writes stop where the other side does not read, and no message may be longer than 16 MiB.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "rendezvous/frames.h"

namespace lockstep::rendezvous {

// One client of a frame server. Nothing here blocks.

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

/// What a server does with messages. All functions are called by the server's thread and must not block.
class FrameService {
 public:
  virtual ~FrameService() = default;

  virtual void on_message(ServerConnection& from, std::string_view payload) = 0;
  /// The connection is gone; its id does not come again.
  virtual void on_closed(const ServerConnection& connection) = 0;
  /// When on_time() is due, if at all.
  virtual std::optional<Deadline> next_deadline() const { return std::nullopt; }
  virtual void on_time() {}
};

/// The first byte of a message says for which service it is.
using FrameServices = std::map<char, FrameService*>;

/// See above. Its thread lives as long as it does.
class LOCKSTEP_API FrameServer {
 public:
  /// `sockets` listen; services outlive the server.
  FrameServer(std::vector<UniqueFd> sockets, std::string key, FrameServices services);

  /// Closes all connections.
  ~FrameServer();
  FrameServer(const FrameServer&) = delete;
  FrameServer& operator=(const FrameServer&) = delete;

 private:
  struct Stranger {
    std::uint64_t id;
    Deadline came_at;
  };

  void serve(const std::stop_token& stop);
  int wait_time_ms() const;
  void listen(bool wanted);
  void accept_some(const UniqueFd& socket);
  void turn_away(std::list<Stranger>::iterator stranger, std::string_view why);
  void make_room();
  void turn_away_late();
  void attend(ServerConnection& connection, std::uint32_t events);
  void hand_over_messages(ServerConnection& connection);
  void hand_over_rest();
  void watch(ServerConnection& connection);
  void let_services_act();
  void settle();
  void forget(const ServerConnection& connection);

  std::vector<UniqueFd> sockets_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::string key_;
  FrameServices services_;
  std::uint64_t next_id_;  ///< below are the server's own descriptors
  std::map<std::uint64_t, std::unique_ptr<ServerConnection>> connections_;
  std::map<std::uint64_t, std::uint32_t> watched_;  ///< epoll's events by connection
  std::set<std::uint64_t> changed_;                 ///< connections that settle() has to look at
  std::set<std::uint64_t> unfinished_;              ///< that have sent more messages than were handed over
  std::list<Stranger> strangers_;                   ///< by arrival
  std::optional<Deadline> listens_again_at_ = {};   ///< where descriptors have run out
  std::jthread thread_;
};

}  // namespace lockstep::rendezvous
