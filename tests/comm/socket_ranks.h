// Ranks that lockstep's own sockets connect, without a group around them: threads of this process.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/base/unique_fd.h>

#include "comm/transport/sockets/socket_transport.h"

namespace lockstep::test {

/// Both ends of a TCP connection over the loopback interface. They do not block.
inline std::pair<UniqueFd, UniqueFd> tcp_pair() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  UniqueFd caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(caller.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  UniqueFd called(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  EXPECT_EQ(::fcntl(caller.get(), F_SETFL, O_NONBLOCK), 0);
  return {std::move(caller), std::move(called)};
}

using SocketRanks = std::vector<std::unique_ptr<detail::SocketTransport>>;

/// `ranks` of them, each connected with each other one.
inline SocketRanks socket_ranks(int ranks, detail::SocketLinks::Options options = {}) {
  std::vector<std::vector<UniqueFd>> sockets(static_cast<std::size_t>(ranks));
  for (auto& each : sockets) each.resize(static_cast<std::size_t>(ranks));
  options.names.clear();
  for (std::size_t low = 0; low < sockets.size(); ++low) {
    options.names.push_back("rank " + std::to_string(low));
    for (std::size_t high = low + 1; high < sockets.size(); ++high)
      std::tie(sockets[low][high], sockets[high][low]) = tcp_pair();
  }
  SocketRanks all;
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(std::make_unique<detail::SocketTransport>(
        rank, std::move(sockets[static_cast<std::size_t>(rank)]), options));
  return all;
}

/// Runs `body` once per rank, each in a thread of its own. Throws what one of them threw.
inline void run_each(const SocketRanks& ranks, const std::function<void(detail::SocketTransport&)>& body) {
  std::vector<std::exception_ptr> failures(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          body(*ranks[rank]);
        } catch (...) {
          failures[rank] = std::current_exception();
        }
      });
  }
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::test
