// The group of several ranks: carries out collectives in the order of their issue over a transport, with sums
// in a fixed order, checks before each, and the errors of lockstep.
#pragma once

#include <atomic>
#include <exception>
#include <memory>

#include <lockstep/base/export.h>

#include "comm/collectives/collective_runner.h"
#include "comm/fork_guard.h"
#include "comm/group/agreement.h"
#include "comm/group/device_issuer.h"
#include "comm/group/group.h"
#include "comm/group/job_mesh.h"
#include "comm/group/lane.h"
#include "comm/shared_memory/segment_board.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {

/// Connects the ranks of `identity` by the transport that the options name. Collective, blocking. `check`
/// throws when the group can no longer come about. Exported for tests.
/// @throws PeerLost naming a rank that is gone; Timeout, CommError
LOCKSTEP_API std::shared_ptr<Group> connect_group(const GroupContext& context, const GroupIdentity& identity,
                                                  const FailureCheck& check);

class ConnectedGroup final : public Group {
 public:
  /// What Group is for several ranks; `transport` connects them.
  ConnectedGroup(const TransportRow& row, GroupContext context, const GroupIdentity& identity,
                 std::shared_ptr<Transport> transport);
  /// Closes as Communicator's last copy does (communicator.h). May not run in a forked child.
  ~ConnectedGroup() override;

  std::string backend() const override { return std::string(row_.name); }
  std::chrono::milliseconds timeout() const override { return context_.options.timeout; }
  std::uint64_t bytes_sent() const override { return transport_->bytes_sent(); }
  std::string activity() const override;
  bool overlaps() const override { return on_devices_.is_connected() || !are_processors_taken_; }
  void run(const Collective& collective) override;
  std::shared_ptr<Pending> start(const Collective& collective) override;
  std::shared_ptr<Group> make_subgroup(std::span<const int> members, int number) override;
  void close() override;

 private:
  std::shared_ptr<Lane> lane_of(const Collective& collective);
  std::vector<std::shared_ptr<Lane>> lanes() const;
  void note_caller();

  void execute(Lane& lane, const Collective& collective);
  void perform_or_translate(Lane& lane, const Collective& collective);
  void perform(Lane& lane, const Collective& collective);
  void perform_inline(Lane& lane, const Collective& collective);
  void perform_in_segments(const Lane& lane, const Collective& collective);
  void await_unchecked(const Lane& lane, int member, Flag& flag, std::uint64_t value) const;
  void open_segments_once();
  [[noreturn]] void rethrow(const Lane& lane, const char* name) const;

  bool has_failed() const;
  bool is_all_well() const;
  bool is_left_in_peace() const;
  void drain();
  void end(bool in_peace);
  void close_together();
  void await_key(const std::string& key, std::chrono::milliseconds patience);

  // Destroyed from the last to the first: the store, which rank 0 may serve, goes last.
  const TransportRow& row_;
  HomeProcess home_;
  GroupContext context_;
  rendezvous::ControlMesh::Token abort_ = {};  // aborts the transport when the job fails
  std::shared_ptr<Transport> transport_;
  HostSegments host_;  // without segments where there are none, or they have not been opened yet
  std::unique_ptr<SegmentBoard> board_;  // in the segments
  rendezvous::Hosts hosts_ = {};         // where the segments are not of all members
  bool has_looked_for_segments_ = false;
  int inline_collectives_ = 0;  // before that
  CollectiveRunner runner_;
  std::unique_ptr<Agreement> agreement_;           // null: collectives are not checked
  StoreBarrier barrier_;                           // of groups that do not check
  std::atomic<bool> are_processors_taken_{false};  // by the members, which share memory
  std::atomic<bool> has_collective_failed_{false};
  std::exception_ptr failure_;  // of the lane of collectives, whose thread it belongs to
  // Shared with the Works that were given out; end() stops them while the above still stands.
  std::shared_ptr<Lane> collectives_;
  MessageLanes messages_;
  DeviceIssuer on_devices_;
  std::atomic<bool> is_closed_{false};
  std::atomic<bool> has_ended_{false};
};

}  // namespace lockstep::detail
