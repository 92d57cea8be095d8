#include "profilers/per_thread.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constinit thread_local bool is_ending = false;

struct Leases {
  std::vector<ThreadLease> all;

  ~Leases() {
    is_ending = true;
    last_object = {};
    for (const auto& lease : all) lease.in_use->store(false, std::memory_order_release);
  }
};

std::vector<ThreadLease>& leases() {
  thread_local Leases mine;
  return mine.all;
}

}  // namespace

constinit thread_local LastObject last_object;

void* leased_object(std::uint64_t owner) noexcept {
  if (is_ending) return nullptr;
  const auto found = std::ranges::find(leases(), owner, &ThreadLease::owner);
  if (found == leases().end()) return nullptr;
  last_object = {owner, found->object};
  return found->object;
}

bool keep_lease(const ThreadLease& lease) {
  if (is_ending) return false;
  std::erase_if(leases(),
                [](const ThreadLease& old) { return old.in_use.use_count() == 1; });  // owner is gone
  leases().push_back(lease);
  return true;
}

std::uint64_t next_owner() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::string current_thread_name() {
  if (::gettid() == ::getpid()) return "main";
  char name[16] = {};
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  return name;
}

}  // namespace lockstep::detail
