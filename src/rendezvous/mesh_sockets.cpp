#include "rendezvous/mesh_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <thread>

#include <lockstep/base/error.h>

#include "rendezvous/own_address.h"
#include "rendezvous/rank_text.h"
#include "rendezvous/reception.h"
#include "rendezvous/socket_options.h"

namespace lockstep::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The rank's answer; nothing if it was somebody else's, or did not come.
std::optional<Hello> answer_from(int fd, const Hello& own, Deadline deadline) {
  Greeting greeting(own);
  while (greeting.state() == Greeting::kUnfinished && await_ready(fd, POLLIN, deadline)) greeting.read(fd);
  if (greeting.state() != Greeting::kWelcome) return std::nullopt;
  return greeting.hello();
}

UniqueFd call(const Endpoint& endpoint, const Hello& own, std::uint32_t rank, Deadline deadline) {
  while (steady_clock::now() < deadline) {
    auto connection = connect_to(endpoint.host, endpoint.port, deadline);
    if (connection && say(connection->get(), own)) {
      const auto answer = answer_from(connection->get(), own, deadline);
      if (answer && answer->rank == rank) return std::move(*connection);
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return {};
}

std::vector<int> missing_from(const std::vector<UniqueFd>& connections, const Hello& own) {
  std::vector<int> missing;
  for (std::uint32_t rank = 0; rank < connections.size(); ++rank) {
    if (rank != own.rank && !connections[rank]) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

[[noreturn]] void report(std::vector<int> missing, const Hello& own, const Endpoint& endpoint) {
  const auto interface = interface_with(endpoint.host);
  throw Timeout(
      "rendezvous",
      {.what = "ranks could not be connected in time",
       .got = "no connection with " + ranks_text(missing),
       .where = "rank " + std::to_string(own.rank),
       .hint = "this rank listens at " + endpoint.host + (interface.empty() ? "" : " (" + interface + ")") +
               ", on a free port: check the firewall, or name another interface in "
               "GLOO_SOCKET_IFNAME"},
      missing);
}

}  // namespace

std::vector<UniqueFd> connect_mesh(const MeshListener& listener, const Hello& own,
                                   std::span<const Endpoint> endpoints, Deadline deadline) {
  std::vector<UniqueFd> connections(endpoints.size());
  // A called rank answers when it has called all below itself: rank 0 is the first to answer.
  for (std::uint32_t rank = 0; rank < own.rank; ++rank) {
    connections[rank] = call(endpoints[rank], own, rank, deadline);
  }
  Reception reception(listener.fd(), own);
  auto missing = missing_from(connections, own);
  while (!missing.empty() && steady_clock::now() < deadline) {
    for (auto& caller : reception.welcome(deadline)) connections[caller.rank] = std::move(caller.connection);
    missing = missing_from(connections, own);
  }
  if (!missing.empty()) report(std::move(missing), own, listener.endpoint());
  for (const auto& connection : connections) {
    if (connection) tune_socket(connection.get());
  }
  return connections;
}

}  // namespace lockstep::rendezvous
