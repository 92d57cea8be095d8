#include "launch/signal_scope.h"

#include <fcntl.h>

#include <atomic>

namespace lockstep::launch {
namespace {

// A global, since signal handlers have no arguments of their own.
std::atomic<int> request_pipe{-1};

void on_signal(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  const StopRequest request{signal, info->si_code == SI_KERNEL};
  [[maybe_unused]] const auto written = ::write(request_pipe.load(), &request, sizeof(request));
  errno = saved;
}

void install(int signal, struct sigaction& old) {
  ::sigaction(signal, nullptr, &old);
  if (old.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void SignalScope::make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw_errno("cannot create a pipe");
  read_end_ = UniqueFd(ends[0]);
  write_end_ = UniqueFd(ends[1]);
  request_pipe.store(ends[1]);
}

SignalScope::SignalScope() {
  make_pipe();
  for (std::size_t i = 0; i < kSignals.size(); ++i) install(kSignals[i], old_[i]);
  struct sigaction reset {};
  reset.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &reset, &old_child_);
}

SignalScope::~SignalScope() {
  restore_handlers();
  request_pipe.store(-1);
}

std::optional<StopRequest> SignalScope::next() {
  StopRequest request;
  if (::read(fd(), &request, sizeof(request)) != sizeof(request)) return std::nullopt;
  return request;
}

void SignalScope::hold() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old_mask_);
}

void SignalScope::release() { ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr); }

void SignalScope::restore_in_child() {
  restore_handlers();
  read_end_.reset();
  write_end_.reset();
  release();
}

void SignalScope::renew_in_child() {
  make_pipe();
  release();
}

void SignalScope::restore_handlers() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
  ::sigaction(SIGCHLD, &old_child_, nullptr);
}

}  // namespace lockstep::launch
