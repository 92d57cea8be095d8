#include "launch/first_process.h"

#include <unistd.h>

#include <initializer_list>

namespace lockstep::launch {
namespace {

constexpr pid_t kFirst = 1;
constexpr int kSignalled = 128;

// Ranks that are forked from here are like any other process, and end by the signal itself.
void end_by(int signal) {
  if (::getpid() == kFirst) ::_exit(kSignalled + signal);
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

}  // namespace lockstep::launch
