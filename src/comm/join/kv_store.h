// The key-value store of our launcher as a c10d store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/c10d.h"
#include "comm/fork_guard.h"
#include "rendezvous/kv_client.h"

namespace lockstep::detail {

/// A client, its connections closed in forked children.
class KvConnection {
 public:
  KvConnection(rendezvous::TcpEndpoint server, std::string key, std::chrono::milliseconds patience)
      : client_(std::move(server), std::move(key), patience), guard_([this] { client_.close_copies(); }) {}

  rendezvous::KvClient& client() { return client_; }

 private:
  rendezvous::KvClient client_;
  ForkGuard guard_;
};

/// Every call blocks for one round trip, at most getTimeout(), but the waits, which end when theirs passes
/// and hold up nobody. All @throw CommError when the launcher is gone, Timeout when it does not answer.
class KvStore final : public c10d::Store {
 public:
  /// All keys get `scope` before them.
  KvStore(std::shared_ptr<KvConnection> connection, std::string scope, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  /// Of all scopes.
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  std::string scoped(const std::string& key) const { return scope_ + "/" + key; }
  std::vector<std::string> scoped(const std::vector<std::string>& keys) const;

  std::shared_ptr<KvConnection> connection_;
  std::string scope_;
};

}  // namespace lockstep::detail
