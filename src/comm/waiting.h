// Ways to wait that end: for something that can only be polled, and for a step that cannot be interrupted.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <stop_token>
#include <thread>

#include "base/sockets.h"

namespace lockstep::detail {

/// `timeout`, or a year where it is longer, so that it can be added to the time of a clock.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
}

/// Calls `is_there()` until it returns true or the deadline has passed: again after 1 ms, then less and less
/// often, but every 20 ms at least. Returns whether it returned true. What is_there() throws goes through.
template <class Predicate>
bool poll_until(Deadline deadline, Predicate is_there) {
  using std::chrono::milliseconds;
  for (auto pause = milliseconds(1); !is_there(); pause = std::min(2 * pause, milliseconds(20))) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    std::this_thread::sleep_until(std::min(deadline, now + pause));
  }
  return true;
}

/// Throws when what is waited for can no longer come about.
using FailureCheck = std::function<void()>;

/// Runs `step` in a thread of its own and returns what it returns, or throws what it throws. `check` is
/// called every 20 ms meanwhile. When it throws, the thread is asked to stop and left behind, and the
/// exception goes through: Gloo waits for a rank that has died as long as for a late one. So `step` must own
/// what it uses.
template <class Result>
Result run_until_failure(std::function<Result(std::stop_token)> step, const FailureCheck& check) {
  std::packaged_task<Result(std::stop_token)> task(std::move(step));
  auto result = task.get_future();
  std::jthread thread(std::move(task));  // gives its own token
  try {
    while (result.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) check();
  } catch (...) {
    thread.request_stop();
    thread.detach();
    throw;
  }
  thread.join();
  return result.get();
}

}  // namespace lockstep::detail
