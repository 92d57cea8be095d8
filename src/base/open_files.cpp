#include "base/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

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

}  // namespace lockstep
