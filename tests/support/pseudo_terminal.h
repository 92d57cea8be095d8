// Standard output as a terminal, of which a test reads what was drawn.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

#include <lockstep/base/unique_fd.h>

namespace lockstep::test {

class PseudoTerminal {
 public:
  explicit PseudoTerminal(unsigned short columns = 100)
      : master_(::posix_openpt(O_RDWR | O_NOCTTY)), stdout_(::dup(STDOUT_FILENO)) {
    ::grantpt(master_.get());
    ::unlockpt(master_.get());
    const UniqueFd slave(::open(::ptsname(master_.get()), O_RDWR | O_NOCTTY));
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(slave.get(), TIOCSWINSZ, &size);
    std::fflush(stdout);
    ::dup2(slave.get(), STDOUT_FILENO);
    reader_ = std::jthread([this](const std::stop_token& stop) { read(stop); });
  }
  ~PseudoTerminal() { (void)close(); }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  /// Gives standard output back; what was written to the terminal.
  std::string close() {
    if (!reader_.joinable()) return text_;
    std::fflush(stdout);
    ::dup2(stdout_.get(), STDOUT_FILENO);
    reader_.request_stop();
    reader_.join();
    return text_;
  }

 private:
  // Ends when all has been read that was written before the stop.
  void read(const std::stop_token& stop) {
    for (;;) {
      pollfd wanted{.fd = master_.get(), .events = POLLIN, .revents = 0};
      const bool is_last = stop.stop_requested();
      const bool is_there = ::poll(&wanted, 1, is_last ? 0 : 10) > 0 && (wanted.revents & POLLIN) != 0;
      char bytes[4096];
      const auto count = is_there ? ::read(master_.get(), bytes, sizeof bytes) : 0;
      if (count > 0) text_.append(bytes, static_cast<std::size_t>(count));
      if (count <= 0 && is_last) return;
    }
  }

  UniqueFd master_;
  UniqueFd stdout_;
  std::string text_;
  std::jthread reader_;
};

}  // namespace lockstep::test
