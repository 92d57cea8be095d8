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
