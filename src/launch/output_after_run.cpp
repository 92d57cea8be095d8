// Output of processes that the ranks of a run have left running: a writer without a reader would be killed by
// SIGPIPE.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <string>

#include "launch/output_relay.h"

namespace lockstep::launch {
namespace {

bool has_writer(int pipe) {
  pollfd watched{.fd = pipe, .events = 0, .revents = 0};
  return ::poll(&watched, 1, 0) == 0 || (watched.revents & POLLHUP) == 0;
}

// Descriptors of the launcher: locks that others wait for, and sockets that they would connect to.
void close_all_but(const std::vector<int>& kept) {
  std::vector<int> open;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", gone)) {
    const auto name = entry.path().filename().string();
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec == std::errc()) open.push_back(fd);
  }
  for (const int fd : open)
    if (std::ranges::find(kept, fd) == kept.end()) ::close(fd);
}

// Who reads a pipe or a socket waits until nobody can write there any more.
void let_readers_go() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    struct stat file {};
    const bool holds_up = ::fstat(fd, &file) == 0 && !S_ISREG(file.st_mode) && !S_ISCHR(file.st_mode);
    if (fd == STDIN_FILENO || holds_up) ::dup2(nothing, fd);
  }
}

}  // namespace

// Nothing that is thrown may unwind into the frames of the supervisor.
void OutputRelay::read_until_writers_end() noexcept try {
  ::setsid();
  ::prctl(PR_SET_NAME, "ls_output");
  if (::chdir("/") != 0) ::_exit(kExitFailed);  // so that nobody's folder is busy
  ::signal(SIGCHLD, SIG_DFL);
  std::vector<int> kept{STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, stdout_.timer(), stderr_.timer()};
  for (auto& stream : streams_) {
    stream.left.reset();
    kept.insert(kept.end(), {stream.reader.get(), stream.file.get()});
  }
  close_all_but(kept);
  let_readers_go();
  while (std::ranges::any_of(streams_, [](const auto& stream) { return bool(stream.reader); })) {
    std::vector<pollfd> watched;
    add_to(watched);
    ::poll(watched.data(), watched.size(), -1);
    look();
  }
  for (auto* outlet : {&stdout_, &stderr_}) outlet->flush_within(std::chrono::seconds(1));
  ::_exit(0);
} catch (...) {
  ::_exit(kExitFailed);
}

void OutputRelay::leave_reader_for_writers(SignalScope& signals) {
  const auto awaits = [](const Stream& stream) { return stream.reader && has_writer(stream.reader.get()); };
  if (!has_finished() || std::ranges::none_of(streams_, awaits)) return;
  signals.hold();
  if (::fork() == 0) {
    signals.restore_in_child();
    read_until_writers_end();
  }
  signals.release();
}

}  // namespace lockstep::launch
