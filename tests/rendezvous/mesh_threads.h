// Ranks as threads of the test, connected by a control mesh.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/sockets.h"
#include "rendezvous/control_mesh.h"
#include "rendezvous/mesh_sockets.h"

namespace lockstep::testing {

using rendezvous::Announcement;
using rendezvous::ControlMesh;

/// "op 7 in group 2, seq 1".
inline std::string describe_op(const Announcement& announcement) {
  return "op " + std::to_string(static_cast<int>(announcement.what[0])) + " in group " +
         std::to_string(announcement.group) + ", seq " + std::to_string(announcement.sequence);
}

inline Announcement op(int number, std::uint64_t group = 1, std::uint64_t sequence = 1) {
  Announcement announcement{.group = group, .sequence = sequence};
  announcement.what[0] = static_cast<std::byte>(number);
  return announcement;
}

/// A caller that does nothing else.
class StuckCaller final : public rendezvous::Caller {
 public:
  /// That is certain after this time.
  explicit StuckCaller(std::chrono::milliseconds after = {}) : after_(after) {}
  std::optional<std::chrono::milliseconds> is_stuck_after() const override { return after_; }
  bool has_given_up() const override { return false; }

 private:
  std::chrono::milliseconds after_;
};

inline const StuckCaller kStuck;

inline Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

inline std::vector<int> all_of(const ControlMesh& mesh) {
  std::vector<int> members(static_cast<std::size_t>(mesh.size()));
  for (std::size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int>(i);
  return members;
}

/// Runs `body` on each of `ranks` ranks; returns what each threw, "" where nothing. A mesh lives until its
/// body has returned.
inline std::vector<std::string> on_mesh(int ranks,
                                        const std::function<void(std::unique_ptr<ControlMesh>&)>& body) {
  using namespace rendezvous;
  std::vector<std::unique_ptr<MeshListener>> listeners;
  std::vector<Endpoint> endpoints;
  for (int rank = 0; rank < ranks; ++rank) {
    listeners.push_back(std::make_unique<MeshListener>("127.0.0.1"));
    endpoints.push_back(listeners.back()->endpoint());
  }
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      try {
        const Hello hello{.rank = static_cast<std::uint32_t>(rank),
                          .world_size = static_cast<std::uint32_t>(ranks),
                          .token = 42};
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        auto mesh =
            std::make_unique<ControlMesh>(rank, connect_mesh(*listeners[r], hello, endpoints, deadline),
                                          rendezvous::Words{.describe = &describe_op});
        body(mesh);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

/// Sockets between every two of `ranks` ranks: [rank][other]. Whoever makes no mesh of them is a rank that is
/// there, and says nothing.
inline std::vector<std::vector<UniqueFd>> connected_sockets(int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::vector<UniqueFd>> sockets(count);
  for (auto& each : sockets) each.resize(count);
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = a + 1; b < count; ++b) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        throw std::runtime_error("socketpair");
      sockets[a][b] = UniqueFd(pair[0]);
      sockets[b][a] = UniqueFd(pair[1]);
    }
  }
  return sockets;
}

}  // namespace lockstep::testing
