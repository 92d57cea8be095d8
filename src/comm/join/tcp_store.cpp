// The TCP store: c10d's server, and how ranks connect to it in time. All ranks, also the one that
// serves, look first whether the server can be reached at the address they were given, and say why not
// where c10d would retry in silence, or at length on stderr.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/base/expected.h>
#include <lockstep/comm/store.h>

#include "comm/join/shared_store.h"

#include "base/sockets.h"
#include "comm/c10d.h"
#include "comm/compat.h"
#include "comm/errors.h"
#include "comm/event_loop.h"
#include "comm/fork_guard.h"
#include "comm/join/store_client.h"
#include "comm/waiting.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace lockstep {
namespace {

using detail::SigpipeBlock;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kAttemptTime = milliseconds(2000);
constexpr auto kOwnAddressTime = milliseconds(30'000);  // until a name is known that is only just being given
constexpr int kLastPort = 65535;

// Says hello as every client does, and asks for a sign of life: something else may answer there, or nothing.
Expected<void> greet(int socket, Deadline deadline) {
  constexpr std::uint32_t kNonce = 0x6c6f636b;
  auto query = detail::store_greeting();
  query += static_cast<char>(c10d::detail::QueryType::PING);
  query.append(reinterpret_cast<const char*>(&kNonce), sizeof kNonce);
  std::uint32_t answer = 0;
  if (::send(socket, query.data(), query.size(), MSG_NOSIGNAL) < 0)
    return Unexpected{std::string(std::strerror(errno))};
  if (!await_ready(socket, POLLIN, deadline)) return Unexpected{"no answer"};
  if (::recv(socket, &answer, sizeof answer, 0) != sizeof answer || answer != kNonce)
    return Unexpected{"another program answers there"};
  return {};
}

Expected<UniqueFd> try_connect(const TcpStoreOptions& options, Deadline deadline) {
  auto connection = connect_to(options.address, options.port, deadline);
  if (!connection) return connection;
  const auto greeted = greet(connection->get(), deadline);
  if (!greeted) return Unexpected{greeted.error()};
  return connection;
}

std::string place(const TcpStoreOptions& options) {
  return options.address + ":" + std::to_string(options.port);
}

// Tries again until the server answers, for `attempt_time` each time, or says why it has not.
Expected<UniqueFd> connect_by(const TcpStoreOptions& options, Deadline deadline, milliseconds attempt_time) {
  auto pause = milliseconds(5);
  for (;;) {
    auto outcome = try_connect(options, std::min(deadline, steady_clock::now() + attempt_time));
    if (outcome || steady_clock::now() + pause >= deadline) return outcome;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(200));
  }
}

// The server may start later than this rank.
UniqueFd await_server(const TcpStoreOptions& options, Deadline deadline) {
  auto outcome = connect_by(options, deadline, kAttemptTime);
  if (outcome) return std::move(*outcome);
  throw Timeout("comm",
                {.what = "rank 0 cannot be reached at " + place(options) + " within " +
                         std::to_string(options.timeout.count()) + " ms: " + outcome.error(),
                 .hint = "check that rank 0 runs, and the address and port that all ranks were given"});
}

// Connects to this rank's own server at the address that the others were given. The server is there, so that
// one attempt may take all the time.
UniqueFd reach_own_server(const TcpStoreOptions& options, Deadline deadline) {
  auto outcome =
      connect_by(options, std::min(deadline, steady_clock::now() + kOwnAddressTime), kOwnAddressTime);
  if (outcome) return std::move(*outcome);
  throw CommError(
      "comm", {.what = "rank 0 cannot be reached at " + place(options) +
                       ", not even from its own machine: " + outcome.error(),
               .hint = "the address that all ranks are given (main_address, MASTER_ADDR, init_method) must "
                       "be one of the machine of rank 0"});
}

// The address at which c10d's own client in the server's process connects at once. The client is not used.
std::string local_address(const std::optional<int>& listen_fd) {
  constexpr auto kLoopback = "127.0.0.1";
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (!listen_fd || ::getsockname(*listen_fd, plain, &length) != 0) return kLoopback;
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(plain, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return kLoopback;
  const std::string name = text.data();
  return name == "0.0.0.0" || name == "::" ? kLoopback : name;
}

[[noreturn]] void refuse_server(const TcpStoreOptions& options, const std::exception& error) {
  const auto text = detail::plain_text(error);
  const bool is_taken = text.find("EADDRINUSE") != std::string::npos;
  throw CommError("comm", {.what = "rank 0 cannot listen on port " + std::to_string(options.port) + ": " +
                                   (is_taken ? "the port is taken" : text),
                           .hint = is_taken ? "end the program that uses it, or choose another port" : ""});
}

// c10d's store in a process that serves it, or that PyTorch's server waits for.
class C10dStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::TCPStore> store)
      : store_(std::move(store)), loops_(detail::EventLoop::serving(store_->getPort())), guard_([this] {
          for (const auto& loop : loops_) loop.close_copies();
        }) {
    for (const auto& loop : loops_) loop.close_on_exec();
  }
  // The server's thread, for which it would wait, is not in a forked child.
  ~C10dStore() {
    if (!home_.is_this()) (void)store_.release();
  }
  C10dStore(const C10dStore&) = delete;
  C10dStore& operator=(const C10dStore&) = delete;

  int port() const { return store_->getPort(); }

  // Every process of torch.distributed does this; the server waits for all of them.
  void await_workers(Deadline deadline) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    store_->setTimeout(std::max(left, milliseconds(1)));
    store_->waitForWorkers();
  }

 private:
  detail::HomeProcess home_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  std::vector<detail::EventLoop> loops_;
  detail::ForkGuard guard_;
};

std::shared_ptr<C10dStore> open_c10d_store(const TcpStoreOptions& options, c10d::TCPStoreOptions tcp) {
  tcp.port = static_cast<std::uint16_t>(options.port);
  tcp.isServer = options.is_server;
  tcp.masterListenFd = options.is_server ? options.listen_fd : std::nullopt;
  tcp.waitWorkers = false;
  tcp.timeout = detail::bounded(options.timeout);
  const auto address = options.is_server ? local_address(options.listen_fd) : options.address;
  const SigpipeBlock guard;
  try {
    return std::make_shared<C10dStore>(c10::make_intrusive<c10d::TCPStore>(address, tcp));
  } catch (const std::exception& error) {
    if (options.is_server) refuse_server(options, error);
    detail::rethrow_translated({.name = "connect to rank 0", .sequence = 0, .rank = -1, .size = 0});
  }
}

Store client_of(const TcpStoreOptions& options, UniqueFd socket, std::shared_ptr<const void> server) {
  auto connection = std::make_shared<detail::StoreConnection>(options.address, options.port,
                                                              std::move(socket), std::move(server));
  auto client =
      c10::make_intrusive<detail::StoreClient>(std::move(connection), detail::bounded(options.timeout));
  return Store(std::make_shared<detail::StoreImpl>(detail::StoreImpl{std::move(client), options.port}));
}

void await_workers(C10dStore& store, const TcpStoreOptions& options, Deadline deadline) {
  try {
    store.await_workers(deadline);
  } catch (const std::exception& error) {
    throw Timeout("comm", {.what = "not all ranks have joined at " + place(options) + " within " +
                                   std::to_string(options.timeout.count()) + " ms",
                           .got = detail::plain_text(error),
                           .hint = "check that all of them run, and were given this address and port"});
  }
}

void check_port(const TcpStoreOptions& options) {
  const int first = options.is_server ? 0 : 1;
  if (options.port >= first && options.port <= kLastPort) return;
  throw ConfigError("comm", {.what = "port of the store is out of range",
                             .expected = std::to_string(first) + " to " + std::to_string(kLastPort),
                             .got = std::to_string(options.port)});
}

}  // namespace

Store make_tcp_store(const TcpStoreOptions& options) {
  check_port(options);
  const auto deadline = steady_clock::now() + detail::bounded(options.timeout);
  if (!options.is_server) return client_of(options, await_server(options, deadline), {});
  auto server = open_c10d_store(options, {});
  auto at_port = options;
  at_port.port = server->port();
  auto socket = reach_own_server(at_port, deadline);
  return client_of(at_port, std::move(socket), std::move(server));
}

Store detail::make_pytorch_store(const TcpStoreOptions& options, int world_size) {
  check_port(options);
  const auto deadline = steady_clock::now() + bounded(options.timeout);
  UniqueFd socket;
  if (!options.is_server) socket = await_server(options, deadline);
  c10d::TCPStoreOptions tcp;
  tcp.numWorkers = world_size;
  tcp.multiTenant = true;
  auto store = open_c10d_store(options, tcp);
  if (options.is_server) socket = reach_own_server(options, deadline);
  await_workers(*store, options, deadline);
  return client_of(options, std::move(socket), std::move(store));
}

bool detail::is_store_server(const std::string& address, int port, milliseconds patience) {
  return try_connect({.address = address, .port = port}, steady_clock::now() + patience).has_value();
}

}  // namespace lockstep
