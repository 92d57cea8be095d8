// Ranks as threads of the test, connected by a control mesh.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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
  bool is_stuck() const override { return true; }
  bool has_given_up() const override { return false; }
};

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
        auto mesh = std::make_unique<ControlMesh>(
            rank, connect_mesh(*listeners[r], hello, endpoints, deadline), &describe_op);
        body(mesh);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

}  // namespace lockstep::testing
