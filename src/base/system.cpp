#include "base/system.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>  // __GLIBC__
#include <mutex>
#include <utility>
#include <vector>

#include <lockstep/base/env.h>

namespace lockstep {
namespace {

// With so much room nobody need count.
constexpr rlim_t kRoom = 4096;

constexpr auto kHint =
    "raise it: `ulimit -n 4096` in the shell, LimitNOFILE= of a service, --ulimit nofile= of a container";

// Without a descriptor, which reading /proc takes.
rlim_t open_ones(rlim_t limit) {
  rlim_t count = 0;
  for (rlim_t fd = 0; fd < limit; ++fd) count += ::fcntl(static_cast<int>(fd), F_GETFD) >= 0 ? 1 : 0;
  return count;
}

rlimit current_limit() {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

}  // namespace

void require_open_files(std::int64_t more, const std::string& purpose) {
  auto limit = current_limit();
  if (limit.rlim_cur >= kRoom + static_cast<rlim_t>(more)) return;
  const auto needed = open_ones(limit.rlim_cur) + static_cast<rlim_t>(more);
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed + kRoom, limit.rlim_max);
  if (limit.rlim_cur >= needed && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  throw ConfigError("base", {.what = "the limit of open files (ulimit -n) is too low for " + purpose,
                             .expected = "at least " + std::to_string(needed),
                             .got = std::to_string(current_limit().rlim_cur),
                             .hint = kHint});
}

ConfigError too_many_open_files(const std::string& what) {
  const auto limit = current_limit().rlim_cur;
  return {"base",
          {.what = what + ": the limit of open files (ulimit -n) is too low",
           .expected = "more than " + std::to_string(limit),
           .got = std::to_string(limit),
           .hint = kHint}};
}

namespace {

bool is_closed(int fd) { return ::fcntl(fd, F_GETFD) < 0 && errno == EBADF; }

// Without a /dev, as in some containers, the number is taken all the same; writing there then fails.
int open_nothing() {
  const int fd = ::open("/dev/null", O_RDWR);
  return fd >= 0 ? fd : ::open("/", O_PATH);
}

// Before the static objects of this library and of the program, which may open files.
__attribute__((constructor(101))) void occupy_at_load() { occupy_standard_descriptors(); }

}  // namespace

// The lowest one that is free is what open() takes, and those below are open by then.
void occupy_standard_descriptors() {
  const int error = errno;
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (is_closed(fd)) open_nothing();
  errno = error;
}

}  // namespace lockstep

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace lockstep {
namespace {

std::atomic<bool> gives_back = false;

bool is_told_otherwise() {
  return gives_back || env::get("GLIBC_TUNABLES") || !env::with_prefix("MALLOC_").empty();
}

}  // namespace

// To set one of the two stops both from growing: the other one is what it would grow to.
void disable_heap_trimming() {
#ifdef __GLIBC__
  if (is_told_otherwise()) return;
  (void)::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  (void)::mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

// The first value is malloc's own at first; to set it is what stops it from growing.
void return_freed_memory() {
#ifdef __GLIBC__
  gives_back = true;
  (void)::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  (void)::mallopt(M_TRIM_THRESHOLD, 128 * 1024);
#endif
}

}  // namespace lockstep

namespace lockstep::detail {
namespace {

// struct sched_attr of the kernel, which libc's headers lack, in its first version.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

constexpr std::uint32_t kNormalPolicy = 0;  // SCHED_OTHER
// Shorter than what others have, so that it goes first, and long enough that caches are worth filling: two
// threads of a core that change places more often take them away from each other.
constexpr std::uint64_t kSliceNs = 300'000;

}  // namespace

void ask_for_short_time_slices() {
  SchedulingAttributes attributes;
  const bool is_known = ::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0U) == 0;
  if (!is_known || attributes.policy != kNormalPolicy) return;
  attributes.runtime_ns = kSliceNs;
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0U);  // a refusal costs time, nothing else
}

namespace {

class EndOfProcess {
 public:
  ~EndOfProcess() { run(); }

  void add(std::function<void()> act) {
    const std::scoped_lock lock(mutex_);
    acts_.emplace_back(::getpid(), std::move(act));
  }

  void run() {
    std::unique_lock lock(mutex_);
    auto acts = std::exchange(acts_, {});
    lock.unlock();
    for (auto act = acts.rbegin(); act != acts.rend(); ++act) {
      if (act->first == ::getpid()) act->second();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<pid_t, std::function<void()>>> acts_;  // by process
};

EndOfProcess& end() {
  static EndOfProcess end;
  return end;
}

}  // namespace

void at_end_of_process(std::function<void()> act) { end().add(std::move(act)); }

void end_of_process() { end().run(); }

}  // namespace lockstep::detail
