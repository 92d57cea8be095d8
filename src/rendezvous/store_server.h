// The key-value store that a launcher serves to the ranks of its job, and the server of messages under it.
//
// A FrameServer serves messages over TCP to clients that know a key, with one thread and sockets that never
// block. Clients can be silent, slow, hostile or many: a client that has not proved within two seconds that
// it knows the key is closed; where there are too many such strangers, the ones that have sent nothing are
// closed first. Reads are small and alternate between clients, writes stop where the other side does not
// read, and no message may be longer than 16 MiB.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "rendezvous/addresses.h"
#include "rendezvous/frames.h"

namespace lockstep::rendezvous {

// One client of a frame server. Nothing here blocks.

/// A connection that the server has accepted: a stranger, until the client has proved that it knows the key.
class LOCKSTEP_API ServerConnection {
 public:
  /// Sends the greeting. Adds its id to `changed` when it breaks or waits for other events than before. Both
  /// references must outlive this object.
  ServerConnection(std::uint64_t id, UniqueFd socket, const std::string& key,
                   std::set<std::uint64_t>& changed);

  std::uint64_t id() const { return id_; }
  int fd() const { return socket_.get(); }
  bool is_trusted() const { return is_trusted_; }
  /// Whether it was closed by the other side, or is to be closed.
  bool is_broken() const { return is_broken_; }
  void give_up();
  /// Closes a stranger with the reason `why`, to make room for others.
  void turn_away(std::string_view why);
  /// Whether it is a stranger that has sent nothing so far.
  bool is_silent() const { return !is_trusted_ && answer_.empty(); }

  /// Reads a limited amount of what has arrived, so that no client takes all of the server's time.
  void receive();
  /// The next message of a trusted client; none while many answers are unread.
  std::optional<std::string> next_message();
  /// Sends a message, as far as the other side reads; the rest with later calls of flush().
  void send(std::string_view payload);
  void flush();

  /// poll()'s events that this waits for: it is not read from while it does not read.
  bool wants_to_read() const;
  bool wants_to_write() const { return sent_ < unsent_.size(); }

  /// The address of the other side, and whether it is one of this machine.
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
  std::string answer_;  ///< the part of the proof that a stranger has sent so far
  FrameBuffer arrived_;
  std::string unsent_;
  std::size_t sent_ = 0;  ///< bytes of unsent_ that were sent
  bool is_trusted_ = false;
  bool is_broken_ = false;
};

/// What a server does with messages. All functions are called by the server's thread and must not block.
class FrameService {
 public:
  virtual ~FrameService() = default;

  virtual void on_message(ServerConnection& from, std::string_view payload) = 0;
  /// Called when a connection is gone; its id is not used again.
  virtual void on_closed(const ServerConnection& connection) = 0;
  /// When on_time() is due, if at all.
  virtual std::optional<Deadline> next_deadline() const { return std::nullopt; }
  virtual void on_time() {}
};

/// The first byte of a message says for which service it is.
using FrameServices = std::map<char, FrameService*>;

/// The server described above. Its thread lives as long as it does.
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

// The table of a key-value store.

/// Byte strings by key. Not thread-safe.
class KvTable {
 public:
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  /// The value of `key`; null where it is not set. Valid until the table changes.
  const std::string* find(const std::string& key) const;
  /// Adds to the decimal number under `key`, 0 where it is not set.
  /// @returns the sum, or why there is none
  Expected<std::int64_t> add(const std::string& key, std::int64_t delta);
  /// Sets `key` to `desired` where its value is `expected`, or where it is not set and `expected` is empty.
  /// @returns the value after; of a key that is not set, `expected`. Source: c10d's Store
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  bool has_all(std::span<const std::string> keys) const;
  bool erase(const std::string& key) { return values_.erase(key) != 0; }
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }

 private:
  std::unordered_map<std::string, std::string> values_;
};

// The key-value service of a frame server: answers questions about its table, and questions that wait once
// they can be answered.

/// A client asks one question at a time; one that asks while another question of it waits is disconnected.
class LOCKSTEP_API KvService final : public FrameService {
 public:
  void on_message(ServerConnection& from, std::string_view payload) override;
  void on_closed(const ServerConnection& connection) override;
  std::optional<Deadline> next_deadline() const override;
  void on_time() override;

 private:
  struct Waiter {
    ServerConnection* client;
    KvQuery query;
    std::vector<std::string> keys;
    Deadline deadline;
  };
  using Waiters = std::map<std::uint64_t, Waiter>;  // by connection

  void answer(ServerConnection& client, KvQuery query, KvReader& question);
  void await(ServerConnection& client, KvQuery query, std::vector<std::string> keys,
             std::int64_t patience_ms);
  void end_wait(Waiters::iterator waiter, KvStatus status);
  void tell_of(const std::string& key);

  KvTable table_;
  Waiters waiters_;
  std::map<std::string, std::set<std::uint64_t>> awaited_;  // waiters by key
  std::set<std::pair<Deadline, std::uint64_t>> waiters_by_deadline_;
};

/// Serves clients that know `key`, in its own thread, as long as it lives.
class StoreServer {
 public:
  /// `more`: services beside the store, which outlive this.
  StoreServer(BoundSocket socket, std::string key, FrameServices more = {})
      : endpoint_(std::move(socket.endpoint)),
        server_(std::move(socket.fds), std::move(key), with_store(std::move(more))) {}

  /// The endpoint at which clients reach it.
  const TcpEndpoint& endpoint() const { return endpoint_; }

 private:
  FrameServices with_store(FrameServices services) {
    services[kKvLetter] = &store_;
    return services;
  }

  TcpEndpoint endpoint_;
  KvService store_;
  FrameServer server_;
};

}  // namespace lockstep::rendezvous
