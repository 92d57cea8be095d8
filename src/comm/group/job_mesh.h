// The control mesh of a job, and the lanes of its groups, by which the mesh names what ranks do.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "comm/fork_guard.h"
#include "comm/group/lane.h"
#include "comm/transport/transport.h"
#include "rendezvous/control_mesh.h"

namespace lockstep::detail {

/// Shared by all groups of a job: the whole job's, and its sub-groups.
class JobMesh {
 public:
  /// Connects every rank with every other one, whose endpoints are exchanged in `store`. Strangers who call
  /// do not know `token`. Collective, blocking.
  /// @throws Timeout naming ranks that cannot be reached
  JobMesh(const ConnectOptions& options, Store store, std::uint64_t token);

  rendezvous::ControlMesh& mesh() { return mesh_; }

  /// `lane` belongs to this job: it has to be known by name.
  void add(const std::shared_ptr<Lane>& lane);

  /// Notes which thread issues collectives.
  void note_caller();

  /// After how long a wait for `lane` nothing else can be expected to go on in this job before it has come
  /// free: at once if no thread but the one that waits could issue anything; after a second if others might,
  /// but none ever has. Nothing if other threads have issued collectives, too, or other lanes are busy.
  std::optional<std::chrono::milliseconds> is_stuck_after(const Lane& lane) const;

  /// What one of the groups carries out: "all_reduce seq 7 of group {0, 1}"; "" when nothing.
  std::string activity() const;

  /// This rank issues nothing more in `lane`, of collectives: its members are told, once.
  void say_goodbye(Lane& lane);
  /// `lane` is no longer used. Its members are told, unless this is the end of the job for this rank.
  void leave(Lane& lane);
  /// The same for a lane that may be made again; nobody is told.
  void forget(const Lane& lane);

  /// Called by each group when it opens and when it ends. After the last one the other ranks are told, if all
  /// ended in peace.
  void open_group() { ++open_groups_; }
  void close_group(bool in_peace);

 private:
  std::string describe(const rendezvous::Announcement& announcement) const;

  mutable std::mutex mutex_;                                      // guards lanes_
  std::unordered_map<std::uint64_t, std::weak_ptr<Lane>> lanes_;  // by the numbers that meetings know them by
  std::atomic<std::thread::id> caller_{};
  std::atomic<bool> has_many_callers_{false};
  std::atomic<int> open_groups_{0};
  std::atomic<bool> is_at_peace_{true};
  std::vector<int> connections_;  // the mesh's
  rendezvous::ControlMesh mesh_;  // its thread calls describe()
  ForkGuard fork_guard_;
};

/// One group's part of a job.
struct GroupContext {
  ConnectOptions options;             ///< rank and world_size are those within the group
  Store store;                        ///< the group's own
  std::shared_ptr<JobMesh> job = {};  ///< null: collectives are not checked
};

/// Returns unless `job` is known to have failed, or is null. `where` is for the error.
/// @throws PeerLost, CommError naming who is gone
void require_health(const std::shared_ptr<JobMesh>& job, const std::string& where);

}  // namespace lockstep::detail
