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

inline int MachineMemory::processor() { return ::sched_getcpu(); }

template <class Look>
bool MachineMemory::spin(const Look& look) {
  const auto end = steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesBetweenLooksAtTheClock; ++i) {
      pause_briefly();
      if (look()) return true;
    }
  } while (steady_clock::now() < end);
  return false;
}

inline void MachineMemory::wait(Word<std::uint32_t>& word, std::uint32_t value) {
  futex(word, FUTEX_WAIT, value, &kLongestSleep);
}

inline void MachineMemory::wake(Word<std::uint32_t>& word) { futex(word, FUTEX_WAKE, INT_MAX, nullptr); }

void post(Flag& flag, std::uint64_t value) { FlagProtocol<MachineMemory>::post(flag, value); }

bool spin_until(const Flag& flag, std::uint64_t value) {
  return FlagProtocol<MachineMemory>::spin_until(flag, value);
}

bool sleep_until(Flag& flag, std::uint64_t value) {
  return FlagProtocol<MachineMemory>::sleep_until(flag, value);
}

}  // namespace lockstep::detail
