// Runs a launch in a process of its own, so that a test can signal, kill and time it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <lockstep/launch/launch.h>

#include "support/temporary_folder.h"

namespace lockstep::testing {

/// Makes `path` hold `text`.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Waits until `holds`; false when 20 s have passed.
bool eventually(const std::function<bool()>& holds);

/// True while a process exists that is no zombie.
bool is_running(pid_t pid);

/// Sleeps until the process is killed.
[[noreturn]] void sleep_for_ever();

/// How a launcher ended.
struct LaunchResult {
  int status = -1;  ///< exit code, or 128 + signal
  std::string errors;
  std::chrono::milliseconds took{0};
  std::map<int, pid_t> pids;  ///< of the ranks, from ranks.json
};

/// A child of the test that calls `launch` with a run_dir and exits with what it returns. Its stderr goes
/// to a file. It is killed when this object ends, and by wait() after 30 s, which fails the test.
class LauncherProcess {
 public:
  explicit LauncherProcess(const std::function<int(LaunchOptions)>& launch);
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;
  ~LauncherProcess();

  pid_t pid() const { return pid_; }
  std::filesystem::path run_dir() const { return dir_.path(); }
  /// The ranks' pids, once `count` are known and each has called ready(); fails the test after 20 s.
  std::map<int, pid_t> wait_for_ranks(int count) const;
  LaunchResult wait();

 private:
  test::TemporaryFolder dir_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  pid_t pid_;
};

/// How a line of the launcher begins that is about rank 1.
std::string rank_one(const LaunchResult& result);

/// In a rank: tells wait_for_ranks() that what follows may be disturbed.
void ready(const LaunchOptions& options);

/// launch_forked() of `ranks` ranks over `body`, each in run_rank(), to its end.
LaunchResult launch_ranks(int ranks, const std::function<void(int rank)>& body);

/// This process's rank, from RANK.
int this_rank();

}  // namespace lockstep::testing
