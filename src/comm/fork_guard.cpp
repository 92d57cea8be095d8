#include "comm/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>

#include <lockstep/base/error.h>

namespace lockstep::detail {

// Never destroyed: a process may fork while static objects are destroyed.
struct ForkGuards {
  std::mutex mutex;  // held during a fork
  std::set<ForkGuard*> all;

  static ForkGuards& get() {
    static auto& guards = *new ForkGuards;
    return guards;
  }

  ForkGuards() { ::pthread_atfork(&before, &after_in_parent, &after_in_child); }
  static void before() { get().mutex.lock(); }
  static void after_in_parent() { get().mutex.unlock(); }
  static void after_in_child() {
    for (auto* const guard : get().all) guard->let_go_();
    get().all.clear();
    get().mutex.unlock();
  }
};

ForkGuard::ForkGuard(std::function<void()> let_go) : let_go_(std::move(let_go)) {
  auto& guards = ForkGuards::get();
  const std::lock_guard lock(guards.mutex);
  guards.all.insert(this);
}

ForkGuard::~ForkGuard() {
  auto& guards = ForkGuards::get();
  const std::lock_guard lock(guards.mutex);
  guards.all.erase(this);
}

namespace {

// Forks between the first process and this one. Asking the system who this is would cost more than a small
// collective.
std::atomic<int> generation{0};

int watched_generation() {
  static const int watch = ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  return watch == 0 ? generation.load(std::memory_order_relaxed) : 0;
}

}  // namespace

HomeProcess::HomeProcess() : generation_(watched_generation()), pid_(::getpid()) {}

bool HomeProcess::is_this() const { return generation.load(std::memory_order_relaxed) == generation_; }

void HomeProcess::require() const {
  if (is_this()) return;
  throw CommError("comm", {.what = "this process is a fork of a rank, not a rank itself",
                           .expected = "a collective in process " + std::to_string(pid_),
                           .got = "process " + std::to_string(::getpid()),
                           .hint = "execute a program in the child, or fork before ranks join"});
}

}  // namespace lockstep::detail
