// The TCP store: c10d's, behind a look whether its server can be reached at all, which says why not
// where c10d would retry in silence, or at length on stderr.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/base/expected.h>
#include <lockstep/comm/store.h>

#include "comm/tcp_store.h"

#include "base/sockets.h"
#include "comm/broken_pipes.h"
#include "comm/c10d.h"
#include "comm/descriptors.h"
#include "comm/errors.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>

namespace lockstep {
namespace {

using detail::BrokenPipesAreErrors;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kAttemptTime = milliseconds(2000);

// c10d's own greeting, which it would wait for without a limit where something else answers, or nothing.
Expected<void> greet(int socket, Deadline deadline) {
  using c10d::detail::QueryType;
  constexpr std::uint32_t kNonce = 0x6c6f636b;
  std::array<char, 2 * (sizeof(QueryType) + sizeof(kNonce))> query;
  char* end = query.data();
  const auto append = [&](const auto& value) {
    end = std::copy_n(reinterpret_cast<const char*>(&value), sizeof value, end);
  };
  append(QueryType::VALIDATE);
  append(c10d::detail::validationMagicNumber);
  append(QueryType::PING);
  append(kNonce);
  std::uint32_t answer = 0;
  if (::send(socket, query.data(), query.size(), MSG_NOSIGNAL) < 0)
    return Unexpected{std::string(std::strerror(errno))};
  if (!await_ready(socket, POLLIN, deadline)) return Unexpected{"no answer"};
  if (::recv(socket, &answer, sizeof answer, 0) != sizeof answer || answer != kNonce)
    return Unexpected{"another program answers there"};
  return {};
}

Expected<void> try_connect(const TcpStoreOptions& options, Deadline deadline) {
  const auto connection = connect_to(options.address, options.port, deadline);
  if (!connection) return Unexpected{connection.error()};
  return greet(connection->get(), deadline);
}

// Retries until the server answers: it may start later than we do.
void await_server(const TcpStoreOptions& options, Deadline deadline) {
  auto pause = milliseconds(5);
  for (;;) {
    const auto outcome = try_connect(options, std::min(deadline, steady_clock::now() + kAttemptTime));
    if (outcome) return;
    if (steady_clock::now() + pause >= deadline) {
      throw Timeout(
          "comm",
          {.what = "rank 0 cannot be reached at " + options.address + ":" + std::to_string(options.port) +
                   " within " + std::to_string(options.timeout.count()) + " ms: " + outcome.error(),
           .expected = "",
           .got = "",
           .where = "",
           .hint = "check that rank 0 runs, and the address and port that all ranks were given"});
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(200));
  }
}

[[noreturn]] void refuse_server(const TcpStoreOptions& options, const std::exception& error) {
  const auto text = detail::plain_text(error);
  const bool is_taken = text.find("EADDRINUSE") != std::string::npos;
  throw CommError("comm", {.what = "rank 0 cannot listen on port " + std::to_string(options.port) + ": " +
                                   (is_taken ? "the port is taken" : text),
                           .expected = "",
                           .got = "",
                           .where = "",
                           .hint = is_taken ? "end the program that uses it, or choose another port" : ""});
}

Store open_store(const TcpStoreOptions& options, c10d::TCPStoreOptions tcp) {
  tcp.port = static_cast<std::uint16_t>(options.port);
  tcp.isServer = options.is_server;
  tcp.masterListenFd = options.is_server ? options.listen_fd : std::nullopt;
  tcp.timeout = options.timeout;
  if (!options.is_server) await_server(options, steady_clock::now() + options.timeout);
  const BrokenPipesAreErrors guard;
  const detail::DescriptorWatch watch;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(options.address, tcp);
    watch.keep_private();
    const int port = store->getPort();
    return Store(std::make_shared<detail::StoreImpl>(detail::StoreImpl{std::move(store), port}));
  } catch (const std::exception& error) {
    if (options.is_server) refuse_server(options, error);
    detail::rethrow_translated({.name = "connect to rank 0", .sequence = 0, .rank = -1, .size = 0});
  }
}

}  // namespace

Store make_tcp_store(const TcpStoreOptions& options) {
  c10d::TCPStoreOptions tcp;
  tcp.waitWorkers = false;
  return open_store(options, tcp);
}

Store detail::make_pytorch_store(const TcpStoreOptions& options, int world_size) {
  c10d::TCPStoreOptions tcp;
  tcp.numWorkers = world_size;
  tcp.multiTenant = true;
  return open_store(options, tcp);
}

bool detail::is_store_server(const std::string& address, int port, milliseconds patience) {
  return try_connect({.address = address, .port = port}, steady_clock::now() + patience).has_value();
}

}  // namespace lockstep
