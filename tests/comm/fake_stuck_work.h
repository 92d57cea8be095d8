// A collective that does not end.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "comm/c10d.h"

namespace lockstep::test {

/// Gloo's work when it missed the end of a connection: nothing ends it but finish().
class FakeStuckWork final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const auto is_done = [&] { return is_done_; };
    if (timeout == kNoTimeout) {
      changed_.wait(lock, is_done);
    } else if (!changed_.wait_for(lock, timeout, is_done)) {
      throw std::runtime_error("Operation timed out!");
    }
    return !is_aborted_;
  }
  bool isCompleted() override {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }
  void abort() override { end(true); }
  void finish() { end(false); }

 private:
  void end(bool aborted) {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    is_aborted_ = aborted;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  bool is_aborted_ = false;
};

}  // namespace lockstep::test
