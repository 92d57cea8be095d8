#include "launch/remote_host.h"

#include <sys/wait.h>

#include <csignal>

namespace lockstep::launch {
namespace {

constexpr int kNoConnection = 255;  // ssh's own
constexpr int kNotFound = 127;      // a shell's
constexpr int kFailed = 1;
constexpr int kEndedBySignal = 128;  // and its number: of the remote shell here, or of the launcher there

}  // namespace

RemoteHost::RemoteHost(std::string name, RankProcess shell, UniqueFd to_stdin, const std::string& order)
    : name_(std::move(name)),
      shell_(std::move(shell)),
      to_stdin_(std::move(to_stdin)),
      orders_(to_stdin_.get()) {
  orders_.add(order);
}

bool RemoteHost::hear(std::string_view line) {
  const auto message = decode_message(line);
  if (!message) {
    last_line_ = line.substr(0, line.find_first_of("\r\n"));
    return false;
  }
  if (message->is_ready)
    is_ready_ = true;
  else if (!failure_)
    failure_ = *message;
  return true;
}

void RemoteHost::add_to(std::vector<pollfd>& watched) const {
  if (!alive()) return;
  watched.push_back({.fd = shell_.pidfd.get(), .events = POLLIN, .revents = 0});
  if (to_stdin_) orders_.add_to(watched);
}

void RemoteHost::flush() {
  if (to_stdin_) orders_.flush();
}

void RemoteHost::send(std::string_view line) {
  orders_.add(std::string(line) + "\n");
  flush();
}

void RemoteHost::pass_on(int signal) {
  shell_.told_to_stop = true;
  if (is_ready_) return send(std::string(kSignal) + std::to_string(signal));
  to_stdin_.reset();
  send_signal(shell_, signal);
}

void RemoteHost::kill() {
  shell_.told_to_stop = true;
  to_stdin_.reset();
  send_signal(shell_, SIGKILL);
}

void RemoteHost::look() {
  if (!alive()) return;
  int status = 0;
  const pid_t ended = ::waitpid(shell_.pid, &status, WNOHANG);
  if (ended == 0) return;
  shell_.end = WIFSIGNALED(status) ? ProcessEnd{.signal = WTERMSIG(status)}
                                   : ProcessEnd{.exit_code = ended < 0 ? kNoConnection : WEXITSTATUS(status)};
  shell_.pidfd.reset();
  to_stdin_.reset();
}

bool RemoteHost::is_lost() const {
  if (alive() || !is_ready_ || failure_ || shell_.told_to_stop) return false;
  const int code = shell_.end->status();
  return code == kNoConnection || code > kEndedBySignal;
}

Blame RemoteHost::blame() const {
  if (failure_) return failure_->blame;
  const bool has_failed = !alive() && (shell_.end->failed() || !is_ready_);
  return has_failed && !shell_.told_to_stop ? Blame::kSilentExit : Blame::kNone;
}

std::string RemoteHost::cause() const {
  const auto who = "host " + name_ + ": ";
  if (failure_) return who + failure_->cause;
  const auto last = last_line_.empty() ? "" : ": " + last_line_;
  if (shell_.end->signal != 0)
    return who + "its remote shell was killed by " + signal_name(shell_.end->signal);
  const auto code = std::to_string(shell_.end->exit_code);
  if (shell_.end->exit_code == 0 && !is_ready_)
    return who + "its remote shell ended without starting lockstep" + last;
  if (shell_.end->exit_code == kNotFound && !is_ready_) return who + "lockstep is not there" + last;
  if (is_ready_ && shell_.end->exit_code != kNoConnection)
    return who + "lockstep run exited with code " + code + last;
  return who + (is_ready_ ? "the connection was lost" : "cannot be reached") +
         " (the remote shell exited with code " + code + ")" + last;
}

int RemoteHost::exit_code() const {
  if (failure_) return failure_->exit_code;
  const int code = shell_.end->status();
  return code == kNoConnection || code == 0 ? kFailed : code;
}

}  // namespace lockstep::launch
