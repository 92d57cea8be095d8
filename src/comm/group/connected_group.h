// Runs collectives on a c10d backend: in the order of their issue, with sums in a fixed order, and with
// the errors of lockstep. Our own Communicator and, through C10dAdapter, c10d's Reducer issue theirs here.
#pragma once

#include <exception>
#include <memory>

#include <lockstep/comm/init.h>
#include <lockstep/comm/store.h>

#include "comm/collectives/collective_runner.h"
#include "comm/collectives/inline_collective.h"
#include "comm/group/agreement.h"
#include "comm/group/group.h"
#include "comm/group/lane.h"
#include "comm/transport/gloo/gloo_transport.h"

namespace lockstep::detail {

class OrderedBackend {
 public:
  /// `store` is the group's own. Of `options`, reduction and peers count. Without `agreement` collectives are
  /// not checked.
  OrderedBackend(std::shared_ptr<Transport> transport, const GroupIdentity& identity, const Store& store,
                 const CommOptions& options, std::unique_ptr<Agreement> agreement);
  /// As close().
  ~OrderedBackend();
  OrderedBackend(const OrderedBackend&) = delete;
  OrderedBackend& operator=(const OrderedBackend&) = delete;

  const GroupIdentity& identity() const { return identity_; }
  std::uint64_t bytes_sent() const { return transport_->bytes_sent(); }
  std::string activity() const;
  /// Whether a collective failed; the group is of no further use then.
  bool has_failed() const { return has_failed_; }

  /// Called once, from any thread, with what the collective failed with.
  using OnDone = std::function<void(std::exception_ptr)>;

  /// Returns when `collective` is done; throws what it failed with.
  void run(const Collective& collective);
  /// Returns at once.
  std::shared_ptr<Pending> start(const Collective& collective, OnDone on_done = {});
  /// The same for several collectives, no messages, that are done when the last is. Returns at once.
  std::shared_ptr<Pending> start_all(std::vector<Collective> collectives, OnDone on_done = {});

  /// Returns when all that was issued so far is done.
  void drain();
  /// Fails what is not done, the collective under way included, and all later ones. Returns when no
  /// thread is in here any more.
  void close();

 private:
  std::shared_ptr<Lane> lane_of(const Collective& collective);
  std::vector<std::shared_ptr<Lane>> lanes() const;
  void note_caller();
  void execute(Lane& lane, const Collective& collective);
  void perform_or_translate(Lane& lane, const Collective& collective);
  void perform(Lane& lane, const Collective& collective);
  void perform_small(Lane& lane, const Collective& collective);
  void perform_near(Lane& lane, const Collective& collective);
  [[noreturn]] void rethrow(const Lane& lane, const char* name) const;

  GroupIdentity identity_;
  std::shared_ptr<Transport> transport_;
  Executor executor_;
  std::unique_ptr<Agreement> agreement_;
  Scratch scratch_;  // of the lane of collectives
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;  // of the lane of collectives, whose thread it belongs to
  // Shared with the Works that were given out; the destructor stops them while the above still stands.
  std::shared_ptr<Lane> collectives_;
  MessageLanes messages_;
};

}  // namespace lockstep::detail
