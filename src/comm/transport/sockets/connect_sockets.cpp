// How the ranks of a group connect their sockets: each listens, and calls those below it.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include <lockstep/base/error.h>

#include "comm/transport/endpoints.h"
#include "comm/transport/sockets/socket_transport.h"
#include "comm/waiting.h"
#include "rendezvous/mesh_sockets.h"
#include "rendezvous/message.h"

namespace lockstep::detail {
namespace {

using rendezvous::Hello;
using Sockets = std::shared_ptr<std::vector<UniqueFd>>;

std::string name_of(const ConnectOptions& options, int member) {
  return "rank " + std::to_string(options.global_rank(member));
}

// A rank that is stopped for a while takes nothing, which is no reason to take it for lost: whether a machine
// has vanished, the control mesh knows.
void wait_for_slow_readers(int fd) {
  const unsigned without_end = 0;
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &without_end, sizeof without_end);
}

// Ranks are numbered within the group there.
std::vector<int> global_ranks_of(const ConnectOptions& options, const std::vector<int>& members) {
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(options.global_rank(member));
  return ranks;
}

std::vector<UniqueFd> connect_each(const ConnectOptions& options, const rendezvous::MeshListener& listener,
                                   const std::vector<rendezvous::Endpoint>& endpoints, Deadline deadline,
                                   const std::stop_token& stop) try {
  const Hello hello{.rank = static_cast<std::uint32_t>(options.rank),
                    .world_size = static_cast<std::uint32_t>(options.world_size),
                    .token = options.group_id};
  return rendezvous::connect_mesh(listener, hello, endpoints, deadline, stop);
} catch (const Timeout& error) {
  const auto ranks = global_ranks_of(options, error.ranks());
  throw Timeout(
      "comm",
      {.what = "ranks could not be connected in time",
       .got = "no connection with " + rendezvous::ranks_text(ranks),
       .where = name_of(options, options.rank),
       .hint = "this rank listens at " + listener.endpoint().host +
               ", on a free port: check the firewall, or name another interface in GLOO_SOCKET_IFNAME"},
      ranks);
}

Sockets connect_all(const ConnectOptions& options, Store store, const std::stop_token& stop) {
  const auto deadline = std::chrono::steady_clock::now() + bounded(options.timeout);
  const rendezvous::MeshListener listener(options.own_address);
  const auto endpoints = exchange_endpoints(store, "sockets/", options, listener.endpoint(), stop);
  auto sockets = connect_each(options, listener, endpoints, deadline, stop);
  for (const auto& socket : sockets)
    if (socket) wait_for_slow_readers(socket.get());
  return std::make_shared<std::vector<UniqueFd>>(std::move(sockets));
}

}  // namespace

std::shared_ptr<Transport> connect_sockets(const ConnectOptions& options, const Store& store,
                                           const FailureCheck& check) {
  SocketLinks::Options links{.timeout = options.timeout, .gives_notice = !options.check_collectives};
  for (int member = 0; member < options.world_size; ++member) links.names.push_back(name_of(options, member));
  const auto connect = [=](const std::stop_token& stop) { return connect_all(options, store, stop); };
  auto sockets = run_until_failure<Sockets>(connect, check);
  return std::make_shared<SocketTransport>(options.rank, std::move(*sockets), links);
}

}  // namespace lockstep::detail
