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
#include <thread>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "rendezvous/server_connection.h"

namespace lockstep::rendezvous {

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
