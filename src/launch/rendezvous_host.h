// The host of a rendezvous: a server to which the launchers of all nodes, its own among them, and the ranks
// connect.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "launch/coordinator.h"
#include "rendezvous/store_server.h"

namespace lockstep::launch {

/// The coordinator, fed by connections.
class CoordinatorService final : public rendezvous::FrameService {
 public:
  CoordinatorService(const RendezvousOptions& options, const JoinRequest& own, int max_restarts);

  /// Blocks until all nodes have left, for at most `patience`.
  void await_departure(std::chrono::milliseconds patience);

  void on_message(rendezvous::ServerConnection& from, std::string_view payload) override;
  void on_closed(const rendezvous::ServerConnection& connection) override;
  std::optional<Deadline> next_deadline() const override;
  void on_time() override;

 private:
  void note_departure();

  std::map<std::uint64_t, rendezvous::ServerConnection*> nodes_;
  Coordinator coordinator_;
  std::mutex mutex_;
  std::condition_variable departure_;
  bool is_empty_ = true;  // guarded by mutex_
};

/// Serves as long as it lives, on a thread of its own.
class RendezvousHost {
 public:
  /// `socket` listens at the endpoint of `options`.
  RendezvousHost(rendezvous::BoundSocket socket, const RendezvousOptions& options, const JoinRequest& own,
                 int max_restarts, const std::string& key);

  /// As CoordinatorService::await_departure().
  void await_departure(std::chrono::milliseconds patience) { coordinator_.await_departure(patience); }

 private:
  CoordinatorService coordinator_;
  rendezvous::StoreServer server_;
};

}  // namespace lockstep::launch
