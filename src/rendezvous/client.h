// Clients of a frame server: one connection, and the key-value store of a job over several.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "rendezvous/addresses.h"
#include "rendezvous/frames.h"

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

/// Thread-safe. A call uses a connection that no other call uses, or opens one, so that a call that waits for
/// a key does not delay others. Every call blocks for one round trip, calls that wait up to their timeout.
/// All @throw CommError when the server is gone or refuses, Timeout when it does not answer.
class LOCKSTEP_API KvClient {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Connects, with further attempts until `patience` has passed, which is also the limit for answers.
  /// @throws Timeout when no server answers; CommError when a server of another job does
  KvClient(TcpEndpoint server, std::string key, Milliseconds patience);

  void set(const std::string& key, std::string_view value);
  /// The value of `key`, once it is set; nothing where it was not set within `timeout`.
  std::optional<std::string> get(const std::string& key, Milliseconds timeout);
  /// @throws CommError also when the value of `key` is no number
  std::int64_t add(const std::string& key, std::int64_t delta);
  /// As KvTable::compare_set().
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired);
  bool check(std::span<const std::string> keys);
  /// Whether all keys are set within `timeout`.
  bool wait(std::span<const std::string> keys, Milliseconds timeout);
  bool erase(const std::string& key);
  std::int64_t num_keys();

  const TcpEndpoint& server() const { return server_; }
  /// Sets the limit for answers from now on.
  void set_patience(Milliseconds patience) { patience_ = patience; }
  /// For a forked child: closes its copies of idle connections, which the parent continues to use. Takes no
  /// lock, since another thread of the parent may have held it.
  void close_copies();

 private:
  FrameLink take_link(Deadline deadline);
  std::string exchange(const KvWriter& question, Milliseconds wait);
  KvReader ask(std::string& answer, const KvWriter& question, Milliseconds wait);
  [[noreturn]] void give_up() const;

  TcpEndpoint server_;
  std::string key_;
  std::atomic<Milliseconds> patience_;
  std::mutex mutex_;
  std::vector<FrameLink> idle_;  // guarded by mutex_
};

}  // namespace lockstep::rendezvous
