// The key-value store that a launcher serves to the ranks of its job.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

#include "rendezvous/frame_server.h"
#include "rendezvous/kv_messages.h"
#include "rendezvous/tcp_endpoint.h"

namespace lockstep::rendezvous {

// The table of a key-value store.

/// Byte strings by key. Not thread-safe.
class KvTable {
 public:
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  /// Nothing where it is not set. Valid until the table changes.
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

// The key-value store of a frame server: answers questions about its table, those that wait once it can.

/// A client asks one question at a time; who asks while another one of his waits is turned away.
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

/// Serves as long as it lives, on a thread of its own, those who know `key`.
class StoreServer {
 public:
  /// `more`: services beside the store, which outlive this.
  StoreServer(BoundSocket socket, std::string key, FrameServices more = {})
      : endpoint_(std::move(socket.endpoint)),
        server_(std::move(socket.fds), std::move(key), with_store(std::move(more))) {}

  /// Where clients find it.
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
