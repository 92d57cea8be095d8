// The store that `lockstep run` serves to its ranks, as a c10d store.

#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/format.h"
#include "comm/c10d.h"
#include "comm/fork_guard.h"
#include "comm/join/shared_store.h"
#include "comm/waiting.h"
#include "rendezvous/client.h"

namespace lockstep::detail {
namespace {

using Bytes = std::vector<std::uint8_t>;
using std::chrono::milliseconds;

std::string_view view(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void miss(const std::string& key) {
  throw Timeout("comm", {.what = "store: a key was not set in time", .got = key});
}

// A client, its connections closed in forked children.
class KvConnection {
 public:
  KvConnection(rendezvous::TcpEndpoint server, std::string key, std::chrono::milliseconds patience)
      : client_(std::move(server), std::move(key), patience), guard_([this] { client_.close_copies(); }) {}

  rendezvous::KvClient& client() { return client_; }

 private:
  rendezvous::KvClient client_;
  ForkGuard guard_;
};

// The launcher's key-value store as a c10d store. Every call blocks for one round trip, at most getTimeout(),
// but the waits, which end when theirs passes and hold up nobody. All throw CommError when the launcher is
// gone, Timeout when it does not answer.
class KvStore final : public c10d::Store {
 public:
  // All keys get `scope` before them.
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
  // Counts the keys of all scopes.
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  std::string scoped(const std::string& key) const { return scope_ + "/" + key; }
  std::vector<std::string> scoped(const std::vector<std::string>& keys) const;

  std::shared_ptr<KvConnection> connection_;
  std::string scope_;
};

KvStore::KvStore(std::shared_ptr<KvConnection> connection, std::string scope, milliseconds timeout)
    : c10d::Store(timeout), connection_(std::move(connection)), scope_(std::move(scope)) {}

c10::intrusive_ptr<c10d::Store> KvStore::clone() {
  return c10::make_intrusive<KvStore>(connection_, scope_, timeout_);
}

void KvStore::setTimeout(const milliseconds& timeout) {
  c10d::Store::setTimeout(timeout);
  connection_->client().set_patience(bounded(timeout));
}

std::vector<std::string> KvStore::scoped(const std::vector<std::string>& keys) const {
  std::vector<std::string> all;
  for (const auto& key : keys) all.push_back(scoped(key));
  return all;
}

void KvStore::set(const std::string& key, const Bytes& value) {
  connection_->client().set(scoped(key), view(value));
}

Bytes KvStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  const auto value = connection_->client().compare_set(scoped(key), view(expected), view(desired));
  return {value.begin(), value.end()};
}

Bytes KvStore::get(const std::string& key) {
  const auto value = connection_->client().get(scoped(key), bounded(timeout_));
  if (!value) miss(key);
  return {value->begin(), value->end()};
}

std::int64_t KvStore::add(const std::string& key, std::int64_t value) {
  return connection_->client().add(scoped(key), value);
}

bool KvStore::deleteKey(const std::string& key) { return connection_->client().erase(scoped(key)); }

bool KvStore::check(const std::vector<std::string>& keys) {
  return connection_->client().check(scoped(keys));
}

std::int64_t KvStore::getNumKeys() { return connection_->client().num_keys(); }

void KvStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void KvStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  if (!connection_->client().wait(scoped(keys), bounded(timeout))) miss(keys.front());
}

constexpr auto kPlace = "LOCKSTEP_STORE";
constexpr auto kScope = "LOCKSTEP_STORE_SCOPE";
constexpr auto kKeyFile = "LOCKSTEP_STORE_TOKEN_FD";

// All local ranks share the file and its position, so that nobody may move that.
std::string read_key(int fd) {
  std::array<char, 4096> bytes{};
  const auto count = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (count <= 0)
    throw ConfigError("comm",
                      {.what = kKeyFile,
                       .expected = "the descriptor of a file that the launcher has left open",
                       .got = std::to_string(fd) + ": " + system_error_text(count < 0 ? errno : EIO),
                       .hint = "a program between the launcher and this one may have closed it, as Python's "
                               "subprocess does unless it gets close_fds=False"});
  return {bytes.data(), static_cast<std::size_t>(count)};
}

// Reads the key once. Programs that this rank starts do not inherit it.
std::string take_key() {
  static std::mutex mutex;
  static std::string key;
  const std::lock_guard lock(mutex);
  if (key.empty()) {
    const auto fd = static_cast<int>(env::require_int(kKeyFile));
    key = read_key(fd);
    ::close(fd);
    env::unset(kKeyFile);
  }
  return key;
}

bool is_place_of_launcher(const CommOptions& options) {
  return env::get("MASTER_ADDR") == options.main_address &&
         env::get("MASTER_PORT") == std::to_string(options.main_port);
}

}  // namespace

std::optional<Store> launcher_store(const CommOptions& options) {
  const auto place = env::get(kPlace);
  if (!place || !is_place_of_launcher(options)) return std::nullopt;
  auto endpoint = rendezvous::parse_endpoint(*place, 0);
  if (!endpoint || endpoint->port == 0)
    throw ConfigError("comm", {.what = kPlace, .expected = "HOST:PORT", .got = "\"" + *place + "\""});
  const int port = endpoint->port;
  const auto timeout = bounded(options.timeout);
  auto connection = std::make_shared<KvConnection>(std::move(*endpoint), take_key(), timeout);
  auto store = c10::make_intrusive<KvStore>(std::move(connection), env::get(kScope).value_or(""), timeout);
  return Store(std::make_shared<StoreImpl>(StoreImpl{std::move(store), port}));
}

}  // namespace lockstep::detail
