#include "launch/job_store.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace lockstep::launch {

StoreAccess::StoreAccess(rendezvous::TcpEndpoint endpoint, const std::string& key)
    : endpoint_(std::move(endpoint)),
      key_file_(::memfd_create("lockstep-token", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!key_file_ || ::write(key_file_.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()))
    throw_errno("cannot hand the key of the store to the ranks");
  ::fcntl(key_file_.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
}

void StoreAccess::add_to(RankPlan& plan, int round) const {
  plan.variables["LOCKSTEP_STORE"] = endpoint_.text();
  plan.variables["LOCKSTEP_STORE_SCOPE"] = "round-" + std::to_string(round);
  plan.variables["LOCKSTEP_STORE_TOKEN_FD"] = std::to_string(key_file_.get());
  plan.inherited_fds.push_back(key_file_.get());
}

}  // namespace lockstep::launch
