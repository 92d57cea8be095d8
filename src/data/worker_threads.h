// The threads that make a loader's batches.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::detail {

/// Threads that all do the same work, once each time they are asked.
class WorkerThreads {
 public:
  explicit WorkerThreads(std::int64_t count);
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Has each thread call `work`, which must not throw. The work before must be done.
  void start(std::function<void()> work);
  /// Until all have done.
  void wait();

 private:
  void run();
  void stop();

  std::mutex mutex_;  // guards the four below
  std::condition_variable changed_;
  std::function<void()> work_;
  std::int64_t round_ = 0;  // of work, counted from 1
  std::int64_t busy_ = 0;   // threads that have not done the last round yet
  bool stopping_ = false;
  std::vector<std::jthread> threads_;  // last: joined before what they use goes
};

/// Hands out threads: each time the same ones if they are to persist and nobody has them, else new ones.
class WorkerPool {
 public:
  WorkerPool(std::int64_t count, bool persistent) : count_(count), persistent_(persistent) {}
  std::int64_t count() const { return count_; }
  std::shared_ptr<WorkerThreads> threads();

 private:
  std::int64_t count_;
  bool persistent_;
  std::mutex mutex_;
  std::shared_ptr<WorkerThreads> kept_;
};

}  // namespace lockstep::detail
