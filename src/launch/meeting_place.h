// How the launcher of a node gets to the rendezvous: as its host, or as a guest.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "launch/coordinator.h"
#include "launch/rank_observer.h"
#include "rendezvous/frame_link.h"
#include "rendezvous/store_server.h"
#include "rendezvous/tcp_endpoint.h"

namespace lockstep::launch {

// The host of a rendezvous: a server to which the launchers of all nodes, its own among them, and the ranks
// connect.

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

/// A place at the rendezvous.
struct Seat {
  std::unique_ptr<RendezvousHost> host;  ///< null: another node hosts
  rendezvous::FrameLink link;
  rendezvous::TcpEndpoint endpoint;  ///< of the host as it is reached from here
};

/// Hosts where that is this node's part: node 0 of a static job; else whoever can listen at the endpoint,
/// which must be an address of its machine, but where options.is_host says so: then all addresses of the
/// machine will do. Otherwise calls the host until it answers. Blocks until `deadline`, heeding `events`; a
/// signal to stop ends the process.
/// @throws ConfigError when another job meets there, or another program has the port; Timeout naming the
///   endpoint when nobody answers; CommError when this node must host and cannot
Seat take_seat(const RendezvousOptions& options, const JoinRequest& request, int max_restarts,
               const std::string& key, Deadline deadline, const LauncherEvents& events);

}  // namespace lockstep::launch
