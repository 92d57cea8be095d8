#include "launch/rank_observer.h"

#include <signal.h>
#include <string.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return std::string(field, ::strnlen(field, N));
}

// Whether the rank has lost a peer, or waited for one in vain.
bool is_echo(RankOutcome outcome) {
  return outcome == RankOutcome::kPeerFailed || outcome == RankOutcome::kTimedOut;
}

// Whether the signal explains the end better than the error of the rank: a rank with an error may abort while
// it exits.
bool was_killed(const RankProcess& process, const RankStatus& status) {
  const int signal = process.end->signal;
  return signal != 0 && !(signal == SIGABRT && is_echo(status.outcome.load(std::memory_order_acquire)));
}

}  // namespace

Blame blame(const RankProcess& process, const RankStatus& status) {
  if (process.alive() || process.told_to_stop || !process.end->failed()) return Blame::kNone;
  if (was_killed(process, status)) return Blame::kSignal;
  switch (status.outcome.load(std::memory_order_acquire)) {
    case RankOutcome::kFailed:
      return Blame::kOwnError;
    case RankOutcome::kTimedOut:
      return Blame::kTimeout;
    case RankOutcome::kPeerFailed:
      return Blame::kEcho;
    case RankOutcome::kRunning:
    case RankOutcome::kDone:
      return Blame::kSilentExit;
  }
  return Blame::kSilentExit;
}

bool left_early(const RankProcess& process, const RankStatus& status) {
  return !process.alive() && !process.told_to_stop && !process.end->failed() &&
         status.outcome.load(std::memory_order_acquire) == RankOutcome::kRunning;
}

const RankProcess* who_waits_to_join(const RankProcess& process, std::span<const RankProcess> ranks,
                                     const StatusTable& statuses) {
  if (process.alive() || process.told_to_stop || process.end->failed()) return nullptr;
  const auto joins = statuses[process.local_rank].joins.load();
  const auto waits = [&](const RankProcess& rank) {
    const auto& status = statuses[rank.local_rank];
    return rank.alive() && status.joins.load() > joins && status.in_join.load() != 0;
  };
  const auto found = std::ranges::find_if(ranks, waits);
  return found == ranks.end() ? nullptr : &*found;
}

std::optional<LateJoin> who_is_late_to_join(std::span<const RankProcess> ranks, const StatusTable& statuses) {
  const auto waits = [&](const RankProcess& rank) {
    return rank.alive() && statuses[rank.local_rank].in_join.load() != 0;
  };
  const auto waiting = std::ranges::find_if(ranks, waits);
  if (waiting == ranks.end()) return std::nullopt;
  const auto joins = statuses[waiting->local_rank].joins.load();
  const auto late = std::ranges::find_if(ranks, [&](const RankProcess& rank) {
    return rank.alive() && !waits(rank) && statuses.is_written(rank.local_rank) &&
           statuses[rank.local_rank].joins.load() < joins;
  });
  return late == ranks.end() ? std::nullopt : std::optional(LateJoin{&*waiting, &*late});
}

std::string error_line(const RankStatus& status) {
  const auto text = text_of(status.error);
  return text.substr(0, text.find('\n'));
}

std::string notice_line(const RankStatus& status) {
  const auto text = text_of(status.notice);
  return text.substr(0, text.find('\n'));
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

// The kernel ends a process by it that touches what is not there of a file in its memory.
std::string usual_cause(int signal) {
  return signal != SIGBUS ? ""
                          : "; a file that it has mapped, such as of tokens, weights or shards, has become "
                            "shorter, or a disk or /dev/shm is full";
}

std::string describe_end(const RankProcess& process, int node, const RankStatus& status, bool is_written) {
  const auto who = "rank " + std::to_string(process.rank) + " (node " + std::to_string(node) + ", pid " +
                   std::to_string(process.pid) + ") ";
  const auto& end = *process.end;
  const auto where = is_written ? ' ' + whereabouts(status) : "";
  const auto error = error_line(status);
  if (was_killed(process, status))
    return who + "killed by " + signal_name(end.signal) + where +
           (error.empty() ? usual_cause(end.signal) : ": " + error);
  if (!error.empty()) return who + "failed: " + error;
  return who + "exited with code " + std::to_string(end.exit_code) +
         (end.failed() ? "" : " in the middle of the run") + where;
}

std::string describe_wait(const RankProcess& waiting, std::span<const RankProcess> ranks,
                          const StatusTable& statuses) {
  const auto& own = statuses[waiting.local_rank];
  if (own.outcome.load(std::memory_order_acquire) != RankOutcome::kTimedOut) return "";
  std::string text;
  for (const auto& process : ranks) {
    const auto& status = statuses[process.local_rank];
    if (status.sequence.load() >= own.sequence.load()) continue;
    text += (text.empty() ? "; waiting for rank " : ", rank ") + std::to_string(process.rank) + " (" +
            whereabouts(status) + ")";
  }
  return text;
}

void LauncherEvents::wait(std::vector<pollfd> watched, int timeout_ms) const {
  watched.push_back({.fd = signals_.fd(), .events = POLLIN, .revents = 0});
  for (const auto* observer : observers_) observer->add_to(watched);
  ::poll(watched.data(), watched.size(), timeout_ms);
  for (auto* observer : observers_) observer->look();
}

}  // namespace lockstep::launch
