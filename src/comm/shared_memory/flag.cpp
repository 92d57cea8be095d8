#include "comm/shared_memory/flag.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

namespace lockstep::detail {
namespace {

using std::chrono::steady_clock;

constexpr auto kSpinTime = std::chrono::microseconds(50);
constexpr int kPausesBetweenLooksAtTheClock = 32;
constexpr timespec kLongestSleep{.tv_sec = 0, .tv_nsec = 10'000'000};

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Not of this process alone: the futex lies in memory that others share.
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  ::syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

// The fence orders the value before the question who sleeps; a sleeper says so before it asks for the value.
void post(Flag& flag, std::uint64_t value) {
  flag.processor.store(::sched_getcpu(), std::memory_order_relaxed);
  flag.value.store(value, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (flag.sleepers.load(std::memory_order_relaxed) == 0) return;
  flag.wakes.fetch_add(1, std::memory_order_relaxed);
  futex(flag.wakes, FUTEX_WAKE, INT_MAX, nullptr);
}

bool spin_until(const Flag& flag, std::uint64_t value) {
  if (has_come_to(flag, value)) return true;
  // A rank that was last seen here cannot go on before this one stops.
  if (flag.processor.load(std::memory_order_relaxed) == ::sched_getcpu()) return false;
  const auto end = steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesBetweenLooksAtTheClock; ++i) {
      pause_briefly();
      if (has_come_to(flag, value)) return true;
    }
  } while (steady_clock::now() < end);
  return false;
}

bool sleep_until(Flag& flag, std::uint64_t value) {
  flag.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const auto seen = flag.wakes.load(std::memory_order_seq_cst);
  if (!has_come_to(flag, value)) futex(flag.wakes, FUTEX_WAIT, seen, &kLongestSleep);
  flag.sleepers.fetch_sub(1, std::memory_order_relaxed);
  return has_come_to(flag, value);
}

}  // namespace lockstep::detail
