#include "launch/launcher_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/launch/join.h>

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

[[noreturn]] void launch_and_exit(const std::filesystem::path& dir,
                                  const std::function<int(LaunchOptions)>& launch) {
  const int errors = ::open((dir / "stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(errors, STDERR_FILENO);
  ::close(errors);
  int status = 99;
  try {
    status = launch({.run_dir = dir});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  ::_exit(status);
}

std::map<int, pid_t> read_pids(const std::filesystem::path& dir) {
  std::map<int, pid_t> pids;
  const auto json = nlohmann::json::parse(test::content(dir / "ranks.json"), nullptr, false);
  if (!json.is_object()) return pids;
  for (const auto& [rank, pid] : json.items()) pids[std::stoi(rank)] = pid;
  return pids;
}

}  // namespace

void write_file(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

bool eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// Reading fails where the process ends meanwhile: getline takes it for an empty file, iterators throw.
bool is_running(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const auto name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.size() > name_end + 2 && stat[name_end + 2] != 'Z';
}

void sleep_for_ever() {
  while (true) ::pause();
}

LauncherProcess::LauncherProcess(const std::function<int(LaunchOptions)>& launch) : pid_(::fork()) {
  if (pid_ == 0) launch_and_exit(dir_.path(), launch);
}

LauncherProcess::~LauncherProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::map<int, pid_t> LauncherProcess::wait_for_ranks(int count) const {
  EXPECT_TRUE(eventually([&] {
    for (int rank = 0; rank < count; ++rank) {
      if (!std::filesystem::exists(run_dir() / ("ready_" + std::to_string(rank)))) return false;
    }
    return read_pids(run_dir()).size() == static_cast<std::size_t>(count);
  })) << "the ranks did not start";
  return read_pids(run_dir());
}

LaunchResult LauncherProcess::wait() {
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) {
    ADD_FAILURE() << "the launcher did not end: " << test::content(run_dir() / "stderr");
    return {};
  }
  pid_ = -1;
  const auto took = std::chrono::steady_clock::now() - started_;
  return {.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          .errors = test::content(run_dir() / "stderr"),
          .took = std::chrono::duration_cast<std::chrono::milliseconds>(took),
          .pids = read_pids(run_dir())};
}

std::string rank_one(const LaunchResult& result) {
  return "lockstep: rank 1 (node 0, pid " + std::to_string(result.pids.at(1)) + ") ";
}

void ready(const LaunchOptions& options) {
  write_file(options.run_dir / ("ready_" + std::to_string(this_rank())), "");
}

LaunchResult launch_ranks(int ranks, const std::function<void(int rank)>& body) {
  return LauncherProcess([&](LaunchOptions options) {
           options.nprocs = ranks;
           return launch_forked(options, [&] { return run_rank([&] { body(this_rank()); }); });
         })
      .wait();
}

int this_rank() { return static_cast<int>(env::require_int("RANK")); }

}  // namespace lockstep::testing
