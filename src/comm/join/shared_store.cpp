#include "comm/join/shared_store.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/sockets.h"
#include "comm/c10d.h"
#include "comm/stores.h"

namespace lockstep::detail {
namespace {

constexpr auto kAnswerTime = std::chrono::milliseconds(1000);  // of a store that is there

constexpr auto kListenFd = "LOCKSTEP_LISTEN_FD";

struct SharedStore {
  std::mutex mutex;  // held while the store is made, which may take as long as rank 0 does
  std::optional<Store> store;
  std::atomic<int> next_scope = 0;
};

// By rank, too: ranks may be threads of one process.
using Place = std::tuple<std::string, int, int>;
constexpr int kNoRank = -1;  // for ranks out of range

// Never destroyed: a thread may still be in a collective when static objects are.
SharedStore& shared_store_at(const Place& place) {
  static std::mutex mutex;
  static auto& stores = *new std::map<Place, SharedStore>;
  const std::lock_guard lock(mutex);
  return stores[place];
}

SharedStore& shared_store_at(const CommOptions& options) {
  const bool is_rank = options.rank >= 0 && options.rank < options.world_size;
  return shared_store_at({options.main_address, options.main_port, is_rank ? options.rank : kNoRank});
}

// The number of the scope that this process has not been in, whatever its rank was then.
int next_scope(const CommOptions& options) {
  const int without_rank = shared_store_at({options.main_address, options.main_port, kNoRank}).next_scope;
  return std::max<int>(shared_store_at(options).next_scope, without_rank);
}

// torchrun may serve the store itself.
bool serves(const CommOptions& options) {
  return options.rank == 0 && env::get("TORCHELASTIC_USE_AGENT_STORE") != "True";
}

// The socket that our launcher opened for rank 0, so that nobody can take its port, if it listens on `port`.
// It can be taken once; programs that this rank starts do not learn of it.
std::optional<int> take_launcher_socket(int port) {
  if (!env::get(kListenFd)) return std::nullopt;
  const auto fd = static_cast<int>(env::require_int(kListenFd));
  if (lockstep::port_of(fd) != port) return std::nullopt;  // the program meets elsewhere
  env::unset(kListenFd);
  return fd;
}

TcpStoreOptions tcp_options(const CommOptions& options) {
  TcpStoreOptions tcp{.address = options.main_address,
                      .port = options.main_port,
                      .is_server = serves(options),
                      .timeout = options.timeout};
  if (tcp.is_server)
    tcp.listen_fd = options.listen_fd ? options.listen_fd : take_launcher_socket(options.main_port);
  return tcp;
}

// Where the port of a second rank 0 is taken, the first one has it: the handshake there will name both.
Store connect(const CommOptions& options) {
  if (auto store = launcher_store(options)) return std::move(*store);
  auto tcp = tcp_options(options);
  try {
    return make_tcp_store(tcp);
  } catch (const CommError&) {
    if (!tcp.is_server || !is_store_server(tcp.address, tcp.port, kAnswerTime)) throw;
    tcp.is_server = false;
    return make_tcp_store(tcp);
  }
}

std::string scope_name(int number) { return "communicator/" + std::to_string(number); }

// A rank that could not join, or came too late, has missed scopes that others have left: they are in the
// newest.
int newest_scope(Store& store, int first) {
  const auto is_open = [](int number) { return scope_name(number) + "/is_open"; };
  int number = first;
  while (store.check(is_open(number + 1))) ++number;
  store.set(is_open(number), "");
  return number;
}

Store open_scope(SharedStore& shared, const CommOptions& options, std::chrono::milliseconds patience) {
  limit_answers(*shared.store, patience);
  const int number = newest_scope(*shared.store, next_scope(options));
  shared.next_scope = number + 1;
  return scoped(*shared.store, scope_name(number));
}

}  // namespace

Store shared_store(const CommOptions& options) {
  auto& shared = shared_store_at(options);
  const std::lock_guard lock(shared.mutex);
  if (!shared.store) shared.store = connect(options);
  return open_scope(shared, options, options.timeout);
}

std::optional<Store> shared_store_if_served(const CommOptions& options) {
  auto& shared = shared_store_at(options);
  const std::lock_guard lock(shared.mutex);
  if (!shared.store) shared.store = launcher_store(options);
  if (!shared.store) {
    if (!is_store_server(options.main_address, options.main_port, kAnswerTime)) return std::nullopt;
    shared.store = make_tcp_store({.address = options.main_address, .port = options.main_port});
  }
  return open_scope(shared, options, kAnswerTime);
}

// The key under which Gloo publishes the addresses of a rank.
bool is_pytorch_rank(const Store& scope, int rank) {
  return Store(std::make_shared<StoreImpl>(StoreImpl{without_scopes(scope)}))
      .check("default_pg/0//cpu//0/" + std::to_string(rank));
}

Store pytorch_store(const CommOptions& options) {
  return make_pytorch_store(tcp_options(options), options.world_size);
}

}  // namespace lockstep::detail
