#include <lockstep/base/process.h>

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include <lockstep/base/env.h>

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
