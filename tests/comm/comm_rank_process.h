// The program comm_rank, started by a test.
#pragma once

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/paths.h"

namespace lockstep::testing {

/// A comm_rank process and what it prints. Killed, if it still runs, when this goes.
class CommRankProcess {
 public:
  explicit CommRankProcess(const std::vector<std::string>& args) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) throw std::runtime_error("pipe");
    const std::string program = test::in_build("bin/comm_rank").string();
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const auto& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
    if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    ::close(pipe_ends[1]);
    output_fd_ = pipe_ends[0];
  }
  ~CommRankProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    ::close(output_fd_);
  }
  CommRankProcess(const CommRankProcess&) = delete;
  CommRankProcess& operator=(const CommRankProcess&) = delete;

  /// All that it prints until it ends or the deadline passes.
  std::string output(std::chrono::steady_clock::time_point deadline) {
    std::string text;
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd readable{.fd = output_fd_, .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) <= 0)
        return text + " STUCK";
      std::array<char, 4096> buffer;
      const auto got = read(output_fd_, buffer.data(), buffer.size());
      if (got <= 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  pid_t pid_ = -1;
  int output_fd_ = -1;
};

}  // namespace lockstep::testing
