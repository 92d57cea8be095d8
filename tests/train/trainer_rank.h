// Lets a forked rank of a test make a Trainer of its own.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/torch.h>

namespace lockstep::testing {

/// A port that nobody listens on.
inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  if (!bound) throw std::runtime_error("no port is free");
  return ::ntohs(address.sin_port);
}

/// Sets the variables by which torchrun tells a process its place, as those of `comm` have them. Collective.
inline void become_trainer_rank(const Communicator& comm) {
  const auto port = at::full({1}, comm.rank() == 0 ? free_port() : 0, at::kInt);
  comm.broadcast(port, 0);
  const auto rank = std::to_string(comm.rank()), size = std::to_string(comm.size());
  env::set("TORCHELASTIC_RUN_ID", "test");
  env::set("MASTER_ADDR", "127.0.0.1");
  env::set("MASTER_PORT", std::to_string(port.item<int>()));
  env::set("RANK", rank);
  env::set("LOCAL_RANK", rank);
  env::set("GROUP_RANK", "0");
  env::set("WORLD_SIZE", size);
  env::set("LOCAL_WORLD_SIZE", size);
}

}  // namespace lockstep::testing
