#include "launch/starter_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include <lockstep/base/option_type.h>

#include "launch/orphans.h"
#include "launch/posix.h"
#include "launch/supervisor.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestLine = 100;

bool is_readable(int fd) {
  pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, 0) > 0;
}

[[noreturn]] void end_all() {
  constexpr std::string_view kText =
      "lockstep: stdin has ended, to which this run is tied: all ranks are killed\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  kill_descendants();
  ::_exit(128 + SIGKILL);
}

}  // namespace

StarterLink::StarterLink() : stdin_(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)) {
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!stdin_ || !nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0) throw_errno("cannot watch stdin");
}

void StarterLink::add_to(std::vector<pollfd>& watched) const {
  watched.push_back({.fd = stdin_.get(), .events = POLLIN, .revents = 0});
}

void StarterLink::look() {
  std::array<char, 256> buffer;
  while (is_readable(stdin_.get())) {
    const auto count = ::read(stdin_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) end_all();
    begun_.append(buffer.data(), static_cast<std::size_t>(count));
    for (auto end = begun_.find('\n'); end != std::string::npos; end = begun_.find('\n')) {
      obey(std::string_view(begun_).substr(0, end));
      begun_.erase(0, end + 1);
    }
    if (begun_.size() > kLongestLine) begun_.clear();
  }
}

void StarterLink::obey(std::string_view line) const {
  if (!line.starts_with(kSignal)) return;
  const auto signal = OptionType<int>::parse(line.substr(kSignal.size()));
  if (signal && *signal > 0 && *signal < NSIG) ::kill(::getpid(), *signal);
}

void StarterLink::on_failure(const Failure& failure, Blame blame, int exit_code, const std::string&) {
  if (may_restart_) return;
  const auto cause = failure.cause.substr(0, failure.cause.find('\n'));
  news_ += encode(NodeReport{.blame = blame, .exit_code = exit_code, .cause = cause});
}

}  // namespace lockstep::launch
