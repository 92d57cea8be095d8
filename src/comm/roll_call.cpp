#include "comm/roll_call.h"

#include <unistd.h>

#include <array>
#include <sstream>
#include <thread>
#include <vector>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kVerdict = "roll_call/verdict";  // who was missing when rank 0's time was up
constexpr auto kHeard = "roll_call/heard";      // ranks that know, and need the store no more
constexpr auto kFarewell = milliseconds(1000);  // rank 0's wait for them
constexpr auto kPatience = milliseconds(100);   // between two looks at all missing ranks

struct Entry {
  int world_size = 0;
  std::string whereabouts;  ///< "node1, pid 123"
};

std::string own_whereabouts() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + ", pid " + std::to_string(getpid());
}

Entry parse(const std::string& text) {
  std::istringstream stream(text);
  Entry entry;
  stream >> entry.world_size;
  std::getline(stream >> std::ws, entry.whereabouts);
  return entry;
}

std::string key_of(int rank) { return "roll_call/" + std::to_string(rank); }

void sign_in(Store& store, int rank, int world_size) {
  if (store.add(key_of(rank) + "/count", 1) > 1) {
    const auto first = parse(store.get(key_of(rank), std::chrono::seconds(1)));
    throw CommError("comm", {.what = "rank " + std::to_string(rank) + " joined twice",
                             .expected = "one process per rank",
                             .got = first.whereabouts + " and " + own_whereabouts(),
                             .where = "",
                             .hint = "check the rank that each process was given"});
  }
  store.set(key_of(rank), std::to_string(world_size) + " " + own_whereabouts());
}

void compare(int rank, int world_size, int other_rank, const Entry& other) {
  if (other.world_size == world_size) return;
  throw CollectiveMismatch(
      "comm", {.what = "the ranks disagree on the number of ranks",
               .expected = std::to_string(world_size) + " on rank " + std::to_string(rank),
               .got = std::to_string(other.world_size) + " on rank " + std::to_string(other_rank) + " (" +
                      other.whereabouts + ")",
               .where = "",
               .hint = ""});
}

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "missing rank " : "missing ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

std::string seconds(milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << "s";
  return text.str();
}

Timeout absence(const std::string& verdict) {
  return Timeout(
      "comm",
      {.what = verdict, .expected = "", .got = "", .where = "", .hint = "look at the missing ranks' output"});
}

// Rank 0 holds the store: it may leave only when those who are there have heard why.
void announce(Store& store, const std::string& verdict, int listeners) {
  store.set(kVerdict, verdict);
  const auto until = steady_clock::now() + kFarewell;
  while (store.add(kHeard, 0) < listeners && steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(5));
}

std::string take_verdict(Store& store) {
  auto verdict = store.get(kVerdict, kPatience);
  store.add(kHeard, 1);
  return verdict;
}

}  // namespace

void roll_call(Store& store, int rank, int world_size, steady_clock::time_point deadline,
               milliseconds timeout) {
  sign_in(store, rank, world_size);
  std::vector<int> missing;
  for (int other = 0; other < world_size; ++other) missing.push_back(other);
  const auto has_come = [&](int other) {
    if (!store.check(key_of(other))) return false;
    compare(rank, world_size, other, parse(store.get(key_of(other), kPatience)));
    return true;
  };
  for (;;) {
    std::erase_if(missing, has_come);
    if (missing.empty()) return;
    if (store.check(kVerdict)) throw absence(take_verdict(store));
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    if (left <= milliseconds(0)) break;
    const auto next = key_of(missing.front());
    (void)store.wait(std::span(&next, 1), std::min(left, kPatience));
  }
  const auto present = world_size - static_cast<int>(missing.size());
  const auto verdict = std::to_string(present) + " of " + std::to_string(world_size) +
                       " ranks joined within " + seconds(timeout) + "; " + list(missing);
  if (rank == 0) {
    announce(store, verdict, present - 1);
  } else {
    store.add(kHeard, 1);
  }
  throw absence(verdict);
}

}  // namespace lockstep::detail
