// What c10d, Gloo and the system do when a peer is gone, as errors of lockstep.
#pragma once

#include <csignal>
#include <cstdint>
#include <ctime>
#include <exception>
#include <string>

namespace lockstep::detail {

/// Which collective failed where.
struct FailedCollective {
  std::string name;  ///< "all_reduce"
  std::uint64_t sequence = 0;
  int rank = 0;  ///< global
  int size = 1;
  std::string group = {};  ///< "{0, 2}"; empty for the whole job
  std::string hint = {};   ///< what the user may look at, beside what the kind of failure suggests
};

/// "rank 0 of 3, all_reduce seq 7", or "rank 0, all_reduce seq 7 of group {0, 2}".
std::string place_of(const FailedCollective& failed);

/// The text of an exception without the stack frames and source positions of its C++ origin.
std::string plain_text(const std::exception& error);

/// Rethrows the exception being handled: those of lockstep as they are, others as PeerLost, Timeout or
/// CommError.
[[noreturn]] void rethrow_translated(const FailedCollective& failed);

/// While this lives, SIGPIPE is blocked in this thread and in those that it starts. Gloo and libuv write to
/// sockets as if the signal were ignored, which only Python does: without this, a write to a rank that has
/// died ends the process without a message. How the process itself handles the signal stays as it is.
class SigpipeBlock {
 public:
  SigpipeBlock() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  // A signal that came meanwhile would be delivered now: it is taken away first.
  ~SigpipeBlock() {
    if (sigismember(&before_, SIGPIPE)) return;
    const timespec at_once{};
    sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace lockstep::detail
