// A client of the key-value store of a job.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

#include "rendezvous/frame_link.h"
#include "rendezvous/kv_messages.h"

namespace lockstep::rendezvous {

/// Thread-safe. A call takes a connection that no other uses, or makes one: who waits for a key holds up
/// nobody. Every call blocks for one round trip, those that wait for as long as they are told. All
/// @throw CommError when the server is gone or refuses, Timeout when it does not answer.
class LOCKSTEP_API KvClient {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Connects, trying again until `patience` has passed; `patience` is also for the answers.
  /// @throws Timeout when nobody answers there; CommError when a server of another job does
  KvClient(TcpEndpoint server, std::string key, Milliseconds patience);

  void set(const std::string& key, std::string_view value);
  /// Its value, once it is set; nothing when it was not within `timeout`.
  std::optional<std::string> get(const std::string& key, Milliseconds timeout);
  /// @throws CommError also when the value of `key` is no number
  std::int64_t add(const std::string& key, std::int64_t delta);
  /// As KvTable::compare_set().
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired);
  bool check(std::span<const std::string> keys);
  /// Whether all are set within `timeout`.
  bool wait(std::span<const std::string> keys, Milliseconds timeout);
  bool erase(const std::string& key);
  std::int64_t num_keys();

  const TcpEndpoint& server() const { return server_; }
  /// For answers from now on.
  void set_patience(Milliseconds patience) { patience_ = patience; }
  /// In a forked child, whose parent goes on using them: closes the connections that nobody used. May be
  /// called where locks of the parent are lost.
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
