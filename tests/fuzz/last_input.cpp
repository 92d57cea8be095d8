#include "fuzz/last_input.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());

namespace lockstep::fuzz {
namespace {

constexpr unsigned kDeadlineSeconds = 30;

std::string file_name;
const std::string* last = nullptr;

void on_signal(int signal) {
  save_last_input();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void save_last_input() {  // calls only what signal handlers may call
  const int fd = ::open(file_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0 || last == nullptr) return;
  [[maybe_unused]] const auto written = ::write(fd, last->data(), last->size());
  ::close(fd);
}

void keep_last_input(const std::string& file) {
  file_name = file;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) ::signal(signal, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_last_input);
}

void keep(const std::string& input) { last = &input; }
void renew_deadline() { ::alarm(kDeadlineSeconds); }

}  // namespace lockstep::fuzz
