// Lets a forked rank of a test make a Trainer of its own.
#pragma once

#include <string>

#include <lockstep/base/env.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/torch.h>

#include "comm/listener.h"

namespace lockstep::testing {

/// Sets the variables by which torchrun tells a process its place, as those of `comm` have them. Collective.
inline void become_trainer_rank(const Communicator& comm) {
  const auto port = at::full({1}, comm.rank() == 0 ? test::free_port() : 0, at::kInt);
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
