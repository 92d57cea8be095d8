#include "launch/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "launch/posix.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxShownName = 200;

// Why `path` cannot be executed; empty where it can. Does not throw, also for names that are too long for the
// system.
std::string why_not(const fs::path& path) {
  std::error_code failure;
  const auto status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found) return "no such file";
  if (failure) return failure.message();
  if (fs::is_directory(status)) return "a folder";
  return ::access(path.c_str(), X_OK) == 0 ? "" : "a file without permission to execute";
}

}  // namespace

void refuse_program(const std::string& name, const std::string& why) {
  const auto shown = name.size() > kMaxShownName ? name.substr(0, kMaxShownName) + "..." : name;
  throw ConfigError("launch",
                    {.what = "program " + shown, .expected = "one that can be executed", .got = why});
}

void require_interpreter(const fs::path& program) {
  std::ifstream file(program, std::ios::binary);
  std::string line;
  if (file.get() != '#' || file.get() != '!' || !std::getline(file, line)) return;
  const auto begin = std::min(line.find_first_not_of(" \t"), line.size());
  auto interpreter = line.substr(begin, line.find_first_of(" \t", begin) - begin);
  const auto why = why_not(interpreter);
  if (interpreter.empty() || why.empty()) return;
  const bool has_return = interpreter.ends_with('\r');
  if (has_return) interpreter.pop_back();
  refuse_program(program.string(),
                 "a script for the interpreter " + interpreter +
                     (has_return ? " and a carriage return, which ends its first line" : "") + ": " + why);
}

fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (const auto why = why_not(name); !why.empty()) refuse_program(name, why);
    return name;
  }
  const std::string folders = env::get("PATH").value_or("/usr/bin:/bin");
  for (std::size_t begin = 0; begin <= folders.size();) {
    const auto end = std::min(folders.find(':', begin), folders.size());
    const auto candidate = fs::path(folders.substr(begin, end - begin)) / name;
    if (why_not(candidate).empty()) return candidate;
    begin = end + 1;
  }
  const bool is_here = why_not(fs::path(".") / name) != "no such file" && name.size() < kMaxShownName;
  refuse_program(name, is_here ? "not in PATH; a file of this folder is ./" + name : "not in PATH");
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = 4096;
constexpr std::chrono::milliseconds kEndCheckInterval{5};

struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnPlan(int output) {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_adddup2(&files, output, fd);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

pid_t spawn(const std::vector<std::string>& words, int output) {
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const SpawnPlan plan(output);
  pid_t pid = 0;
  errno = ::posix_spawnp(&pid, arguments.front(), &plan.files, &plan.attributes, arguments.data(), environ);
  if (errno != 0) throw_errno("cannot run " + words.front());
  return pid;
}

// Whether all that the program wrote was read before `deadline`.
bool read_all(int fd, std::string& output, Clock::time_point deadline) {
  std::array<char, 512> bytes{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready == 0) return false;
    if (ready < 0) continue;  // a signal
    const auto count = ::read(fd, bytes.data(), bytes.size());
    if (count == 0) return true;
    if (count > 0)
      output.append(bytes.data(), std::min(static_cast<std::size_t>(count), kMostOutput - output.size()));
  }
}

// Whether the program ends before `deadline`: it may continue after it has closed its output.
bool ends_in_time(pid_t pid, Clock::time_point deadline) {
  siginfo_t end{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kEndCheckInterval);
  }
  return true;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? kExitSignalled + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& words, std::chrono::milliseconds deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot create a pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const auto until = Clock::now() + deadline;
  const pid_t pid = spawn(words, write_end.get());
  write_end.reset();
  CommandResult result;
  const bool has_ended = read_all(read_end.get(), result.output, until) && ends_in_time(pid, until);
  if (!has_ended) ::kill(pid, SIGKILL);
  result.status = wait_for(pid);
  if (has_ended) return result;
  throw Error("launch", {.what = words.front() + " has not ended",
                         .expected = "its end within " + std::to_string(deadline.count()) + " ms",
                         .got = "no end; it was killed" +
                                (result.output.empty() ? "" : ", when it had printed " + result.output)});
}

}  // namespace lockstep::launch
