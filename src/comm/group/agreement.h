// How the members of a group meet before they carry out a collective.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/comm/store.h>

#include "comm/group/group.h"
#include "comm/group/job_mesh.h"
#include "comm/shared_memory/flag.h"

namespace lockstep::detail {

/// Checked collectives: the members of a group agree before each of them, over the job's control mesh.
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

  /// From now on the members of `lane`, the collectives', meet at `board`, which they share. Borrows it until
  /// the lane is left.
  void use(const Lane& lane, rendezvous::AnnouncementBoard& board);
  /// The same for members on several hosts, which share a board on each. Borrows them likewise.
  void use(const Lane& lane, const rendezvous::Hosts& hosts);

  /// While the members carry out what they last agreed on: waits for a late one, whose `flag` is to come to
  /// `value`. From the thread that agreed. @throws as reach()
  void await_late(const Lane& lane, int member, Flag& flag, std::uint64_t value);

  /// After what was agreed on has failed: throws the reason if the members know it, else returns.
  void explain(const Lane& lane, const std::string& place);

 private:
  void meet_within(Lane& lane, const Collective& collective);
  void compare_sizes(Lane& lane, const Collective& collective, const std::vector<std::int64_t>& own);

  std::shared_ptr<JobMesh> job_;
  GroupIdentity identity_;
  std::chrono::milliseconds timeout_;
  rendezvous::AnnouncementBoard* board_ = nullptr;  // of the lane of collectives; null: they send messages
  const rendezvous::Hosts* hosts_ = nullptr;        // of that lane, where it has several
  rendezvous::Announcement last_ = {};              // in that lane
};

/// The monitored barrier of groups whose collectives are not checked, which meet in a store rather than over
/// the control mesh. A missing rank breaks nothing there.
class StoreBarrier {
 public:
  /// `store` is the group's own.
  StoreBarrier(Store store, GroupIdentity identity)
      : store_(std::move(store)), identity_(std::move(identity)) {}

  /// Returns when all ranks have called it as often as this one. Collective, blocking.
  /// @throws Timeout naming, by global rank, those that did not within `timeout`
  void wait(std::chrono::milliseconds timeout);

 private:
  bool has_come(int member);
  [[noreturn]] void report(const std::vector<int>& missing, std::chrono::milliseconds timeout) const;

  Store store_;
  GroupIdentity identity_;
  std::int64_t round_ = 0;
};

}  // namespace lockstep::detail
