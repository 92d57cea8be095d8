// Calls to c10d's TCP store over a connection that stands, each of which ends in its time. c10d's own
// waits for an answer without a limit, and for a key with its lock held: when the host of rank 0 is gone
// nobody can leave, and groups wait for each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "comm/c10d.h"
#include "comm/fork_guard.h"

namespace lockstep::detail {

/// A connection with a server, for clients that take turns.
class StoreConnection {
 public:
  /// Takes over `socket`, on which the greeting was said. `server`, if any, lives as long as this.
  StoreConnection(std::string address, int port, UniqueFd socket, std::shared_ptr<const void> server);

  /// Sends `request` and returns what `receive` does, which calls the functions below. Both in time.
  /// @throws Timeout, std::runtime_error when the server is gone
  template <class Receive>
  auto exchange(std::string_view request, Deadline deadline, Receive receive);
  void receive(void* data, std::size_t bytes, Deadline deadline);
  std::int64_t receive_number(Deadline deadline);

 private:
  void connect(Deadline deadline);
  void send(std::string_view bytes, Deadline deadline);
  [[noreturn]] void give_up() const;

  std::string address_;
  int port_;
  std::shared_ptr<const void> server_;
  std::timed_mutex mutex_;  // held for a round trip; guards socket_
  UniqueFd socket_;
  ForkGuard guard_;
};

/// Every call blocks for one round trip, at most getTimeout(), but the waits, which end when theirs passes.
/// All @throw as the connection does. A wait for a key holds up nobody.
class StoreClient final : public c10d::Store {
 public:
  StoreClient(std::shared_ptr<StoreConnection> connection, std::chrono::milliseconds timeout);

  /// The same store with a timeout of its own. The server looks up the name of each host that connects, which
  /// may take seconds: the connection is shared.
  c10::intrusive_ptr<c10d::Store> clone() override;

  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  bool check(const std::vector<std::string>& keys, Deadline deadline);
  std::int64_t ask_number(std::string_view request);
  Deadline own_deadline() const;

  std::shared_ptr<StoreConnection> connection_;
};

/// What a client says first on a new connection.
std::string store_greeting();

}  // namespace lockstep::detail
