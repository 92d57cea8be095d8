// A program that starts its ranks anew: launch_case RUN_DIR FAULT, with three ranks, of which rank 1
// fails as FAULT says: none, kill, throw or hang.
#include <fcntl.h>

#include <fstream>
#include <string_view>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/launch/fault.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>

namespace {

lockstep::FaultKind fault_kind(std::string_view name) {
  using lockstep::FaultKind;
  if (name == "kill") return FaultKind::kKill;
  if (name == "throw") return FaultKind::kThrow;
  if (name == "hang") return FaultKind::kHang;
  return FaultKind::kNone;
}

void work(const std::filesystem::path& run_dir, lockstep::FaultKind kind) {
  const auto rank = lockstep::env::require_int("RANK");
  std::ofstream file(run_dir / ("rank_" + std::to_string(rank)));
  file << std::ifstream("/proc/self/comm").rdbuf();
  for (const char* name : {"LOCKSTEP_LAUNCHED", "WORLD_SIZE", "LOCKSTEP_STATUS_FD", "GREETING"}) {
    file << lockstep::env::get(name).value_or("-") << "\n";
  }
  const auto socket = static_cast<int>(lockstep::env::get_int("LOCKSTEP_LISTEN_FD", -1));
  file << (socket < 0 ? "-" : ::fcntl(socket, F_GETFD) == FD_CLOEXEC ? "private socket" : "socket?") << "\n";
  lockstep::enter_collective("all_gather");
  lockstep::inject({.kind = kind, .rank = 1, .step = 0}, static_cast<int>(rank), 0);
  if (kind != lockstep::FaultKind::kNone)
    lockstep::inject({.kind = lockstep::FaultKind::kHang}, 0, 0);  // until stopped
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path run_dir = argv[1];
  if (lockstep::started_by_launcher()) {
    lockstep::join_launcher();
    return lockstep::run_rank([&] { work(run_dir, fault_kind(argv[2])); });
  }
  std::jthread other([](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  return lockstep::launch_reexec({.nprocs = 3, .run_dir = run_dir}, argc, argv);
}
