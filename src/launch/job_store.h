// How ranks find the key-value store of their job: LOCKSTEP_STORE=HOST:PORT, and its key in a file that they
// inherit, whose descriptor LOCKSTEP_STORE_TOKEN_FD names. The key is in no file, argument or variable that
// other users could read. LOCKSTEP_STORE_SCOPE keeps the keys of attempts apart.
#pragma once

#include <string>

#include "launch/posix.h"
#include "launch/rank_plan.h"
#include "rendezvous/tcp_endpoint.h"

namespace lockstep::launch {

/// The way to a store.
class StoreAccess {
 public:
  /// @throws Error when the key cannot be put into a file of its own
  StoreAccess(rendezvous::TcpEndpoint endpoint, const std::string& key);

  /// Tells the rank of `plan`, which must start while this lives.
  void add_to(RankPlan& plan, int round) const;

 private:
  rendezvous::TcpEndpoint endpoint_;
  UniqueFd key_file_;
};

}  // namespace lockstep::launch
