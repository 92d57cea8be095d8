#include "launch/supervisor.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "base/diagnoses.h"
#include "base/memory_failure.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// Long enough for the true cause to be collected, short enough to stop all within a second.
constexpr auto kRankEchoPatience = 300ms;
// The time for a rank that has noted an error of its own to end: it joins its threads first, and the machine
// may be busy.
constexpr auto kEndPatience = 5s;
constexpr auto kNextLook = 50ms;
// The interval of checks whether other ranks wait for a rank that has ended, for which nothing wakes the
// supervisor.
constexpr auto kWaitCheckInterval = 100ms;
// The interval of looks for what ranks have to say, for which nothing wakes the supervisor, either.
constexpr auto kNoticeCheckInterval = 1000ms;
// A terminal signals ranks and supervisor together; the ranks' ends may be seen first.
constexpr auto kSignalPatience = 50ms;

// The exit code of a rank that other code of this program has reaped.
constexpr int kUnknownExit = 255;
// The exit code of a run that a rank left with code 0.
constexpr int kLeftEarly = 1;

std::chrono::milliseconds patience(Blame blame, const ProcessEnd& end) {
  if (blame < Blame::kOwnError) return kRankEchoPatience;
  return end.signal == SIGINT || end.signal == SIGTERM ? kSignalPatience : 0ms;
}

std::optional<ProcessEnd> end_of(pid_t pid) {
  int status = 0;
  rusage usage{};
  const pid_t ended = ::wait4(pid, &status, WNOHANG, &usage);
  if (ended == 0) return std::nullopt;
  if (ended < 0) return ProcessEnd{.exit_code = kUnknownExit};
  ProcessEnd end{.peak_rss_bytes = std::int64_t{usage.ru_maxrss} * 1024};
  WIFSIGNALED(status) ? end.signal = WTERMSIG(status) : end.exit_code = WEXITSTATUS(status);
  return end;
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, const RunFiles& files, const StatusTable& statuses,
                       SignalScope& signals, std::vector<RankProcess> ranks,
                       std::vector<RankObserver*> observers)
    : options_(options),
      files_(files),
      statuses_(statuses),
      signals_(signals),
      ranks_(std::move(ranks)),
      observers_(std::move(observers)),
      notices_(ranks_.size()),
      memory_kills_before_(detail::memory_kills()),
      memory_kills_seen_(memory_kills_before_) {
  files_.write_ranks(ranks_);
}

Supervisor::~Supervisor() {
  for (auto& process : ranks_) kill_and_reap(process);
}

int Supervisor::run() {
  heed_observers();  // handles what arrived before the ranks were started
  while (any_alive()) {
    sleep_until_event();
    let_observers_look();
    heed_observers();
    heed_requests();
    say_notices();
    look_for_memory_kills();
    look_for_late_joiner();
    collect_ended();
    look_for_root_cause();
    meet_deadlines();
  }
  await_observers();
  return finish();
}

// Waits for slow readers of the output, as the ranks would have. A request to stop ends the wait.
void Supervisor::await_observers() {
  name_at_.reset();
  kill_at_.reset();
  const auto must_go_on = [&] {
    const bool is_recalled = stopping_ && root_cause_ == nullptr;
    return asked_to_stop_ || is_recalled || std::ranges::any_of(observers_, &RankObserver::recalls_ranks);
  };
  const auto have_finished = [&] {
    return std::ranges::count_if(observers_, [](auto* each) { return !each->has_finished(); }) == 0;
  };
  while (!must_go_on() && !have_finished()) {
    sleep_until_event();
    let_observers_look();
    heed_requests();
  }
}

std::optional<Failure> Supervisor::failure() const {
  if (root_cause_ == nullptr) return std::nullopt;
  return Failure{
      .rank = root_cause_->rank, .pid = root_cause_->pid, .end = *root_cause_->end, .cause = cause_};
}

bool Supervisor::any_alive() const { return std::ranges::any_of(ranks_, &RankProcess::alive); }

// Whether a rank that has ended with code 0 may be missed by one that is still running.
bool Supervisor::may_be_missed() const {
  const auto is_gone = [](const RankProcess& rank) { return !rank.alive() && !rank.end->failed(); };
  return !stopping_ && any_alive() && std::ranges::any_of(ranks_, is_gone);
}

std::optional<Supervisor::Clock::time_point> Supervisor::next_deadline() const {
  if (name_at_) return name_at_;
  if (kill_at_) return kill_at_;
  if (!any_alive()) return std::nullopt;
  return Clock::now() + (may_be_missed() ? kWaitCheckInterval : kNoticeCheckInterval);
}

void Supervisor::sleep_until_event() const {
  std::vector<pollfd> watched{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  for (const auto& process : ranks_) {
    if (process.alive()) watched.push_back({.fd = process.pidfd.get(), .events = POLLIN, .revents = 0});
  }
  for (const auto* observer : observers_) observer->add_to(watched);
  int timeout_ms = -1;
  if (const auto deadline = next_deadline()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    timeout_ms = std::max(0, static_cast<int>(left.count()));
  }
  ::poll(watched.data(), watched.size(), timeout_ms);  // an interrupted poll() only leads to an early check
}

void Supervisor::collect_ended() {
  for (auto& process : ranks_) {
    if (!process.alive()) continue;
    process.end = end_of(process.pid);
    if (process.alive()) continue;
    process.pidfd.reset();
  }
}

// A rank that has left early is to blame as soon as another rank waits for it, in a collective or to join.
Blame Supervisor::blame_of(const RankProcess& process) const {
  const auto own = [&](const RankProcess& rank) { return blame(rank, statuses_[rank.local_rank]); };
  const auto is_echo = [&](const RankProcess& rank) {
    return own(rank) == Blame::kEcho || own(rank) == Blame::kTimeout;
  };
  const bool is_missed =
      left_early(process, statuses_[process.local_rank]) && std::ranges::any_of(ranks_, is_echo);
  const bool is_waited_for = who_waits_to_join(process, ranks_, statuses_) != nullptr;
  return is_missed || is_waited_for ? Blame::kSilentExit : own(process);
}

void Supervisor::look_for_root_cause() {
  if (stopping_) return;
  for (const auto& process : ranks_) {
    const auto weight = blame_of(process);
    if (weight <= (root_cause_ ? blame_of(*root_cause_) : Blame::kNone)) continue;
    root_cause_ = &process;
    const auto name_at = Clock::now() + patience(weight, *process.end);
    name_at_ = std::min(name_at, name_at_.value_or(name_at));
    end_by_ = Clock::now() + kEndPatience;
  }
}

// Whether a rank that is about to end may explain the failure better than the present suspect.
bool Supervisor::awaits_cause() const {
  if (blame_of(*root_cause_) >= Blame::kOwnError || Clock::now() >= end_by_) return false;
  return std::ranges::any_of(ranks_, [&](const RankProcess& rank) {
    return rank.alive() && statuses_[rank.local_rank].outcome.load() == RankOutcome::kFailed;
  });
}

void Supervisor::say(const std::string& text) const {
  const bool is_said = std::ranges::any_of(observers_, [&](auto* observer) { return observer->say(text); });
  if (!is_said) std::cerr << text;
}

void Supervisor::let_observers_look() const {
  for (auto* observer : observers_) observer->look();
}

void Supervisor::heed_observers() {
  bool is_recalled = false;
  say_news();
  for (const auto* observer : observers_) is_recalled = is_recalled || observer->recalls_ranks();
  if (is_recalled && !stopping_) recall();
}

void Supervisor::recall() {
  root_cause_ = nullptr;
  name_at_.reset();
  ask_to_stop(SIGTERM, options_.grace);
}

std::string Supervisor::last_stderr_lines() const {
  let_observers_look();
  std::string words;
  for (const auto* observer : observers_) words += observer->last_stderr_lines(root_cause_->local_rank);
  return words;
}

void Supervisor::say_notices() {
  for (const auto& process : ranks_) {
    const auto& status = statuses_[process.local_rank];
    auto& said = notices_[static_cast<std::size_t>(process.local_rank)];
    const auto notices = status.notices.load(std::memory_order_acquire);
    if (std::exchange(said, notices) != notices && options_.print_failure)
      say("lockstep: " + notice_line(status) + "\n");
  }
}

// Ranks that wait for each other to join have no connections yet, by which they could ask.
void Supervisor::look_for_late_joiner() {
  const auto& after = detail::diagnoses().waits;
  const auto found = after ? who_is_late_to_join(ranks_, statuses_) : std::nullopt;
  if (!found) return late_since_.reset();
  if (!late_since_) late_since_ = Clock::now();
  if (Clock::now() - *late_since_ < *after) return;
  late_since_ = Clock::time_point::max();  // it is said once
  const auto late = std::to_string(found->late->rank);
  if (options_.print_failure)
    say("lockstep: rank " + std::to_string(found->waiting->rank) + " has waited for rank " + late +
        " to join for " + std::to_string(std::chrono::round<std::chrono::seconds>(*after).count()) +
        " s: rank " + late + " is " + whereabouts(statuses_[found->late->local_rank]) + "\n");
}

// Only what was killed just now can be of this job: the count may be that of the whole machine.
void Supervisor::look_for_memory_kills() {
  if (Clock::now() < next_memory_look_) return;
  next_memory_look_ = Clock::now() + kNoticeCheckInterval;
  memory_kills_before_ = std::exchange(memory_kills_seen_, detail::memory_kills());
}

// Only the kernel kills so without a word, and it counts.
std::string Supervisor::memory_words() const {
  const auto& end = *root_cause_->end;
  if (end.signal != SIGKILL || detail::memory_kills() <= memory_kills_before_) return "";
  return ", by the kernel, which had no memory left" +
         detail::memory_report(statuses_[root_cause_->local_rank], end.peak_rss_bytes);
}

void Supervisor::say_news() const {
  for (auto* observer : observers_)
    if (const auto news = observer->take_news(); !news.empty()) say(news);
}

void Supervisor::heed_requests() {
  while (const auto request = signals_.next()) interrupt(*request);
}

void Supervisor::interrupt(const StopRequest& request) {
  if (!request.is_stop()) return pass_on(request);
  asked_to_stop_ = true;
  if (interrupted_at_) {
    if (Clock::now() - *interrupted_at_ > kSameRequest) kill_all();
    return;
  }
  interrupted_at_ = Clock::now();
  if (stopping_ && root_cause_ != nullptr)
    return;  // the failure came first, and ranks have been told to stop
  root_cause_ = nullptr;
  name_at_.reset();
  interrupted_by_ = request.signal;
  say("lockstep: stopped by " + signal_name(request.signal) + "\n");
  // Ranks with sessions of their own are not in the terminal's foreground.
  const bool have_got_it = request.from_terminal && !ranks_.front().leads_session;
  ask_to_stop(have_got_it ? 0 : request.signal, options_.interrupt_grace);
}

void Supervisor::pass_on(const StopRequest& request) {
  const bool have_got_it = request.from_terminal && !ranks_.front().leads_session;
  for (const auto& process : ranks_)
    if (!have_got_it) send_signal(process, request.signal);
}

void Supervisor::meet_deadlines() {
  const auto now = Clock::now();
  if (name_at_ && now >= *name_at_ && awaits_cause()) name_at_ = now + kNextLook;
  if (name_at_ && (now >= *name_at_ || !any_alive())) name_cause();
  if (kill_at_ && now >= *kill_at_) kill_all();
}

void Supervisor::name_cause() {
  name_at_.reset();
  const int local_rank = root_cause_->local_rank;
  cause_ = describe_end(*root_cause_, options_.node_rank, statuses_[local_rank],
                        statuses_.is_written(local_rank)) +
           memory_words() + describe_wait(*root_cause_, ranks_, statuses_);
  if (const auto* waiting = who_waits_to_join(*root_cause_, ranks_, statuses_))
    cause_ += "; rank " + std::to_string(waiting->rank) + " waits for it to join";
  for (const auto* observer : observers_)
    if (const auto error = observer->error_of(local_rank); !error.empty()) cause_ += ": " + error;
  const auto words = last_stderr_lines();
  if (options_.print_failure)
    say("lockstep: " + cause_ + "\n" +
        (words.empty() ? "" : "lockstep: its last lines on stderr were\n" + words));
  for (auto* observer : observers_)
    observer->on_failure(*failure(), blame_of(*root_cause_), exit_code(), words);
  say_news();
  ask_to_stop(SIGTERM, options_.grace);
}

void Supervisor::ask_to_stop(int signal, std::chrono::milliseconds grace) {
  stopping_ = true;
  kill_at_ = Clock::now() + grace;
  for (auto& process : ranks_) {
    if (!process.alive()) continue;
    process.told_to_stop = true;
    send_signal(process, signal);
    send_signal(process, SIGCONT);  // a stopped process would not get the signal
  }
}

void Supervisor::kill_all() {
  kill_at_.reset();
  for (const auto& process : ranks_) send_signal(process, SIGKILL);
}

int Supervisor::exit_code() const {
  if (interrupted_by_ != 0) return kExitSignalled + interrupted_by_;
  if (root_cause_ == nullptr) return 0;
  return root_cause_->end->failed() ? root_cause_->end->status() : kLeftEarly;
}

int Supervisor::finish() const {
  let_observers_look();
  if (interrupted_by_ == 0 && root_cause_ != nullptr)
    files_.write_failure(*root_cause_, cause_, ranks_, statuses_);
  return exit_code();
}

}  // namespace lockstep::launch
