// Steps of joining that nothing can call off: Gloo waits for a rank that has died as long as for a late one.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <stop_token>
#include <thread>

namespace lockstep::detail {

/// Returns what `step` returns, or throws what it throws. It runs in a thread of its own, which is asked to
/// stop and left behind as soon as `check`, called every 20 ms meanwhile, throws; so it must own what it
/// uses.
template <class Result>
Result unless_hopeless(std::function<Result(std::stop_token)> step, const std::function<void()>& check) {
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
