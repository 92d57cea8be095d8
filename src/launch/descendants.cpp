#include "launch/descendants.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

void add_children(const std::filesystem::path& process, std::vector<pid_t>& found) {
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator(process / "task", gone)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child; children >> child;) found.push_back(child);
  }
}

// Its numbers from the PID namespace that /proc was mounted for to its own one.
std::vector<pid_t> numbers_of(const std::filesystem::path& process) {
  constexpr std::string_view kTitle = "NSpid:";
  std::ifstream status(process / "status");
  std::vector<pid_t> numbers;
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kTitle)) continue;
    std::istringstream text(line.substr(kTitle.size()));
    for (pid_t number; text >> number;) numbers.push_back(number);
  }
  return numbers;
}

// A container's /proc may be that of its host (`unshare --pid` without `--mount-proc`), which counts
// otherwise.
std::vector<pid_t> numbers_here(const std::vector<pid_t>& found) {
  const auto depth = numbers_of("/proc/self").size();
  if (depth < 2) return found;
  std::vector<pid_t> numbers;
  for (const pid_t pid : found) {
    const auto all = numbers_of("/proc/" + std::to_string(pid));
    if (all.size() >= depth) numbers.push_back(all[depth - 1]);
  }
  return numbers;
}

std::vector<pid_t> descendants() {
  std::vector<pid_t> found;
  add_children("/proc/self", found);
  for (std::size_t i = 0; i < found.size(); ++i) add_children("/proc/" + std::to_string(found[i]), found);
  return numbers_here(found);
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void kill_descendants() {
  const auto end = std::chrono::steady_clock::now() + 1s;
  while (std::chrono::steady_clock::now() < end) {
    const auto found = descendants();
    for (const pid_t pid : found) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (found.empty()) return;
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace lockstep::launch
