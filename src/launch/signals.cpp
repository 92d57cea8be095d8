#include "launch/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <mutex>
#include <utility>

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

namespace {

constexpr pid_t kFirst = 1;

// Ranks that are forked from here are like any other process, and end by the signal itself.
void end_by(int signal) {
  if (::getpid() == kFirst) ::_exit(kExitSignalled + signal);
  ::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);
}

}  // namespace

bool is_default(const struct sigaction& action) {
  return action.sa_handler == SIG_DFL || action.sa_handler == end_by;
}

void heed_signals_as_first_process() {
  if (::getpid() != kFirst) return;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_DFL) ::signal(signal, end_by);
  }
}

namespace {

constexpr std::size_t kSlots = 65;

struct Slot {
  std::atomic<bool> is_up{false};
  struct sigaction earlier {};
  int users = 0;
};

// A global, since signal handlers have no arguments of their own.
std::array<Slot, kSlots> slots;
std::mutex slots_mutex;  // guards `users` and the installed handlers

Slot& slot_of(int signal) { return slots.at(static_cast<std::size_t>(signal)); }

bool is_handled_by_program(const struct sigaction& action) {
  return !is_default(action) && action.sa_handler != SIG_IGN;
}

void on_flag_signal(int signal, siginfo_t* info, void* context) {
  Slot& slot = slots[static_cast<std::size_t>(signal)];
  slot.is_up.store(true);
  if (!is_handled_by_program(slot.earlier)) return;
  if ((slot.earlier.sa_flags & SA_SIGINFO) != 0) return slot.earlier.sa_sigaction(signal, info, context);
  slot.earlier.sa_handler(signal);
}

void install_flag(int signal, Slot& slot) {
  slot.is_up.store(false);
  ::sigaction(signal, nullptr, &slot.earlier);
  if (slot.earlier.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_sigaction = on_flag_signal;
  action.sa_mask = slot.earlier.sa_mask;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

void restore(int signal, const Slot& slot) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_flag_signal)
    ::sigaction(signal, &slot.earlier, nullptr);
}

}  // namespace

SignalFlag::SignalFlag(int signal) : signal_(signal) {
  const std::lock_guard lock(slots_mutex);
  Slot& slot = slot_of(signal);
  if (slot.users++ == 0) install_flag(signal, slot);
}

SignalFlag::~SignalFlag() { release(); }

void SignalFlag::release() {
  if (!std::exchange(is_held_, false)) return;
  const std::lock_guard lock(slots_mutex);
  Slot& slot = slot_of(signal_);
  if (--slot.users == 0) restore(signal_, slot);
}

void SignalFlag::hand_on() {
  release();
  const std::unique_lock lock(slots_mutex);
  Slot& slot = slot_of(signal_);
  const bool is_news = slot.users == 0 && !is_handled_by_program(slot.earlier);
  if (is_news && slot.is_up.exchange(false)) ::kill(::getpid(), signal_);
}

bool is_flagged(int signal) { return slot_of(signal).is_up.load(); }

void lower_flag(int signal) { slot_of(signal).is_up.store(false); }

}  // namespace lockstep::launch
