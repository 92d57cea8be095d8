// What the operating system grants this process and tells of it (base/system.h, env.h).
#include "base/system.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>  // __GLIBC__
#include <fstream>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/env.h>

#include "base/format.h"

namespace lockstep {
namespace {

// Where so many more descriptors are allowed, the open ones are not counted.
constexpr rlim_t kRoom = 4096;

constexpr auto kHint =
    "raise it: `ulimit -n 4096` in the shell, LimitNOFILE= of a service, --ulimit nofile= of a container";

// The number of open descriptors. Reading /proc would need a descriptor itself.
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

// Some containers have no /dev; then the descriptor is occupied by a folder, and writing to it fails.
int open_nothing() {
  const int fd = ::open("/dev/null", O_RDWR);
  return fd >= 0 ? fd : ::open("/", O_PATH);
}

// Runs before the constructors of static objects of this library and of the program, which may open files.
__attribute__((constructor(101))) void occupy_at_load() { occupy_standard_descriptors(); }

}  // namespace

// open() takes the lowest free descriptor, and those below `fd` are open by then.
void occupy_standard_descriptors() {
  const int error = errno;
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (is_closed(fd)) open_nothing();
  errno = error;
}

}  // namespace lockstep

namespace lockstep {

void finish_standard_output() {
  std::cout.clear();
  errno = 0;
  std::cout.flush();
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (is_written) return;
  throw IoError("base", {.what = "standard output cannot be written",
                         .got = errno == 0 ? "a write that failed, as on a full disk"
                                           : detail::system_error_text(errno)});
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

// Setting one of the two parameters stops malloc from raising both: the other one is set to the value that it
// would have reached.
void disable_heap_trimming() {
#ifdef __GLIBC__
  if (is_told_otherwise()) return;
  (void)::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  (void)::mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

// The first value is malloc's default; setting it stops malloc from raising it.
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
// A slice shorter than the default, so that the thread is scheduled first, and long enough to profit from
// warm caches, which two threads that alternate more often on a core would evict for each other.
constexpr std::uint64_t kSliceNs = 300'000;

}  // namespace

void ask_for_short_time_slices() {
  SchedulingAttributes attributes;
  const bool is_known = ::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0U) == 0;
  if (!is_known || attributes.policy != kNormalPolicy) return;
  attributes.runtime_ns = kSliceNs;
  (void)::syscall(SYS_sched_setattr, 0, &attributes,
                  0U);  // where the kernel refuses, the thread only waits longer
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

namespace lockstep {
namespace {

constexpr auto kStartVariable = "LOCKSTEP_START_NS";

std::chrono::nanoseconds boot_time_now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// Field 22 of /proc/self/stat, in clock ticks since boot; the second field may hold spaces.
std::chrono::nanoseconds own_start() {
  std::string stat;
  std::getline(std::ifstream("/proc/self/stat"), stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  const auto ticks = field.empty() ? 0 : std::stoll(field);
  return std::chrono::nanoseconds(ticks * (1'000'000'000 / sysconf(_SC_CLK_TCK)));
}

}  // namespace

std::chrono::nanoseconds time_since_start() {
  const auto inherited = env::get_int(kStartVariable, 0);
  return boot_time_now() - (inherited != 0 ? std::chrono::nanoseconds(inherited) : own_start());
}

void publish_start() {
  if (!env::get(kStartVariable)) env::set(kStartVariable, std::to_string(own_start().count()));
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace lockstep
