#include "comm/join/join_handshake.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "base/system.h"
#include "comm/join/shared_store.h"
#include "comm/waiting.h"
#include "rendezvous/message.h"

namespace lockstep::detail {
namespace {

using rendezvous::Failure;
using rendezvous::Verdict;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// These keys are the same in all versions: ranks of another one must be told that the protocols differ.
constexpr auto kPresent = "roll_call/present";    // processes that came
constexpr auto kVerdict = "roll_call/verdict";    // why the group cannot come about
constexpr auto kVerdicts = "roll_call/verdicts";  // how many were given; the first one counts
constexpr auto kHeard = "roll_call/heard";        // processes that know it, and need the store no more
constexpr auto kLastWords = milliseconds(1000);   // the server's wait for them
constexpr auto kPatience = milliseconds(100);     // between two looks at all missing ranks

std::string entry_key(int rank) { return "roll_call/" + std::to_string(rank); }

std::string seconds(milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << "s";
  return text.str();
}

Verdict twice(int rank, const std::string& first, const std::string& second) {
  return {.failure = Failure::kOther,
          .ranks = {rank},
          .parts = {.what = "rank " + std::to_string(rank) + " joined twice",
                    .expected = "one process per rank",
                    .got = first + " and " + second,
                    .hint = "check the rank that each process was given, and that no other run uses this "
                            "address"}};
}

Verdict left_over(const std::string& store, int rank, const JoinEntry& gone) {
  return {.failure = Failure::kOther,
          .ranks = {rank},
          .parts = {.what = store + " is left over from an earlier run",
                    .expected = "a file that is not there yet",
                    .got = "rank " + std::to_string(rank) + " (" + gone.whereabouts() +
                           ") has joined there, and is gone",
                    .hint = "remove the file, or choose another one"}};
}

Verdict disagreement(const std::string& what, std::pair<int, std::string> own,
                     std::pair<int, std::string> other) {
  return {.failure = Failure::kMismatch,
          .ranks = {own.first, other.first},
          .parts = {.what = "the ranks disagree on the " + what,
                    .expected = std::move(own.second),
                    .got = std::move(other.second)}};
}

Verdict foreign(int rank, int own_rank) {
  auto verdict =
      disagreement("protocol", {own_rank, "that of lockstep, as on rank " + std::to_string(own_rank)},
                   {rank, "that of torch.distributed on rank " + std::to_string(rank)});
  verdict.parts.hint = "give all ranks of lockstep peers = Peers::kPyTorch where others use PyTorch";
  return verdict;
}

Verdict absence(const std::vector<int>& missing, int world_size, milliseconds timeout) {
  const auto present = world_size - static_cast<int>(missing.size());
  return {.failure = Failure::kTimeout,
          .ranks = missing,
          .parts = {.what = std::to_string(present) + " of " + std::to_string(world_size) +
                            " ranks joined within " + seconds(timeout) + "; missing " +
                            rendezvous::ranks_text(missing),
                    .hint = "look at the missing ranks' output"}};
}

void leave_verdict(Store& store, const Verdict& verdict) {
  if (store.add(kVerdicts, 1) == 1) store.set(kVerdict, rendezvous::to_payload(verdict));
}

// c10d removes a file when as many processes as the group has ranks have left it, those of the earlier run
// included. Ranks that come later must still find it, or they would wait for those that have left.
void keep_for_ever(const Store& store) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<Store>;
  const std::lock_guard lock(mutex);
  kept.push_back(store);
}

// The PID namespace of this process; empty where it is not known, as where /proc is not mounted.
std::string own_pid_space() {
  std::error_code failure;
  return std::filesystem::read_symlink("/proc/self/ns/pid", failure);
}

class Handshake {
 public:
  Handshake(Store& store, const JoinRequest& own)
      : store_(store),
        own_(own),
        entry_(own_entry(own.settings)),
        ranks_(static_cast<std::size_t>(own.world_size)) {}

  void sign_in() {
    store_.add(kPresent, 1);
    const auto key = entry_key(own_.rank);
    if (store_.add(key + "/count", 1) > 1) {
      std::string first = "a process that did not say";
      if (store_.wait(std::span(&key, 1), kLastWords)) {
        const auto entry = join_entry_from_text(store_.get(key, kPatience));
        refuse_if_left_over(own_.rank, entry);
        first = entry.whereabouts();
      }
      refuse(twice(own_.rank, first, entry_.whereabouts()));
    }
    store_.set(key, to_text(entry_));
  }

  JoinedRanks await_all(steady_clock::time_point deadline, milliseconds timeout) {
    std::vector<int> missing;
    for (int rank = 0; rank < own_.world_size; ++rank) missing.push_back(rank);
    for (;;) {
      std::erase_if(missing, [&](int rank) { return has_come(rank); });
      heed_verdict();
      if (missing.empty()) return std::move(ranks_);
      if (is_pytorch_rank(store_, missing.front())) refuse(foreign(missing.front(), own_.rank));
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
      if (left <= milliseconds(0)) break;
      const auto next = entry_key(missing.front());
      (void)store_.wait(std::span(&next, 1), std::min(left, kPatience));
    }
    refuse(absence(missing, own_.world_size, timeout));
  }

 private:
  bool has_come(int rank) {
    if (!store_.check(entry_key(rank))) return false;
    const auto other = join_entry_from_text(store_.get(entry_key(rank), kPatience));
    refuse_if_left_over(rank, other);
    compare(rank, other);
    ranks_[static_cast<std::size_t>(rank)] = other;
    return true;
  }

  void refuse_if_left_over(int rank, const JoinEntry& other) {
    if (own_.left_over.empty() || !other.is_gone()) return;
    keep_for_ever(store_);
    refuse(left_over(own_.left_over, rank, other));
  }

  void compare(int rank, const JoinEntry& other) {
    for (const auto& [name, value] : entry_.settings) {
      const auto found = other.settings.find(name);
      const auto theirs = found == other.settings.end() ? "none" : found->second;
      if (theirs == value) continue;
      refuse(disagreement(
          name, {own_.rank, value + " on rank " + std::to_string(own_.rank)},
          {rank, theirs + " on rank " + std::to_string(rank) + " (" + other.whereabouts() + ")"}));
    }
  }

  void heed_verdict() {
    if (!store_.check(kVerdict)) return;
    take_leave(rendezvous::verdict_from(store_.get(kVerdict, kPatience)));
  }

  [[noreturn]] void refuse(const Verdict& verdict) {
    leave_verdict(store_, verdict);
    take_leave(verdict);
  }

  // The rank that serves the store may leave only when the ranks that are there have read the verdict, and
  // those that are about to come had a moment to do so.
  [[noreturn]] void take_leave(const Verdict& verdict) {
    store_.add(kHeard, 1);
    const std::int64_t awaited = verdict.failure == Failure::kTimeout ? 0 : own_.world_size;
    const auto have_heard = [&] {
      return store_.add(kHeard, 0) >= std::max(awaited, store_.add(kPresent, 0));
    };
    if (own_.is_server) (void)poll_until(steady_clock::now() + kLastWords, have_heard);
    rendezvous::raise(verdict);
  }

  Store& store_;
  const JoinRequest& own_;
  JoinEntry entry_;
  JoinedRanks ranks_;
};

}  // namespace

std::string JoinEntry::whereabouts() const { return host + ", pid " + std::to_string(pid); }

bool JoinEntry::is_gone() const {
  const auto own = own_pid_space();
  return host == host_name() && pid_space == own && !own.empty() && ::kill(pid, 0) != 0 && errno == ESRCH;
}

JoinEntry own_entry(const std::map<std::string, std::string>& settings) {
  return {.host = host_name(), .pid = getpid(), .pid_space = own_pid_space(), .settings = settings};
}

std::string to_text(const JoinEntry& entry) {
  auto text = entry.host + '\n' + std::to_string(entry.pid) + ' ' + entry.pid_space + '\n';
  for (const auto& [name, value] : entry.settings) text += name + '=' + value + '\n';
  return text;
}

JoinEntry join_entry_from_text(const std::string& text) {
  std::istringstream stream(text);
  JoinEntry entry;
  std::getline(stream, entry.host);
  stream >> entry.pid;
  stream.ignore();  // one blank: what follows may be empty
  std::getline(stream, entry.pid_space);
  for (std::string line; std::getline(stream, line);) {
    const auto equals = line.find('=');
    if (equals != std::string::npos) entry.settings[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return entry;
}

void cancel_handshake(Store& store, const ErrorParts& parts) {
  leave_verdict(store, {.failure = Failure::kOther, .parts = parts});
}

JoinedRanks join_handshake(Store& store, const JoinRequest& own, steady_clock::time_point deadline,
                           milliseconds timeout) {
  Handshake handshake(store, own);
  handshake.sign_in();
  return handshake.await_all(deadline, timeout);
}

void require_alive(const JoinedRanks& ranks) {
  const auto gone = std::ranges::find_if(ranks, &JoinEntry::is_gone);
  if (gone == ranks.end()) return;
  const auto rank = static_cast<int>(gone - ranks.begin());
  throw PeerLost("comm",
                 {.what = "rank " + std::to_string(rank) + " is gone: it ended while the ranks connected",
                  .got = gone->whereabouts(),
                  .hint = "its own message tells why"},
                 {rank});
}

}  // namespace lockstep::detail
