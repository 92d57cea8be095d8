// Checked collectives: the members of a group agree before each of them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group/group_identity.h"
#include "comm/group/job_mesh.h"

namespace lockstep::detail {

class Agreement {
 public:
  Agreement(std::shared_ptr<JobMesh> job, GroupIdentity identity, std::chrono::milliseconds timeout);

  /// Blocks until all members of `lane` are about to do the same as `collective`.
  /// @throws CollectiveMismatch, PeerLost, Timeout; then nothing was sent, and all members throw. A monitored
  ///   barrier has its own timeout: that ends it and nothing else
  void reach(Lane& lane, const Collective& collective);

  /// The same; every other member gets `bytes`, and `take` is called with what it gave, by member.
  using Take = std::function<void(int member, std::string_view bytes)>;
  void reach(Lane& lane, const Collective& collective, std::string_view bytes, const Take& take);

  /// While the members of a group carry out what they last agreed on: they meet again. Returns when all have
  /// come. From the thread that agreed. @throws as reach()
  void meet_again(const Lane& lane);

  /// After what was agreed on has failed: throws the reason if the members know it, else returns.
  void explain(const Lane& lane, const std::string& place);

  const std::shared_ptr<JobMesh>& job() const { return job_; }

 private:
  void meet_within(Lane& lane, const Collective& collective);
  void compare_sizes(Lane& lane, const Collective& collective, const std::vector<std::int64_t>& own);

  std::shared_ptr<JobMesh> job_;
  GroupIdentity identity_;
  std::chrono::milliseconds timeout_;
  rendezvous::Announcement last_ = {};  // of the lane of collectives
};

}  // namespace lockstep::detail
