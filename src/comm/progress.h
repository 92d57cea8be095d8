// A queue that runs operations strictly in the order of their issue.
//
// Gloo tags messages by issue order and an ordered all-reduce is two exchanges, so the collectives of
// one group may never overlap. The queue has no fixed worker: whoever waits for an operation runs the
// queue itself, and a blocking call that finds the queue idle never changes thread. The progress
// thread, started by an asynchronous operation, does what nobody waits for, and ends when there has been
// nothing to do for a while.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <lockstep/base/export.h>

namespace lockstep::detail {

class LOCKSTEP_API ProgressQueue {
 public:
  /// An operation, its state guarded by the queue's mutex.
  class Task {
    friend class ProgressQueue;
    std::function<void()> body_;
    std::function<void(std::exception_ptr)> on_done_;
    std::exception_ptr error_;
    bool is_done_ = false;
  };

  ProgressQueue() = default;
  ~ProgressQueue();

  /// Queues `body`. `on_done` is called once, from any thread, after body ended, with what it threw.
  std::shared_ptr<Task> push(std::function<void()> body,
                             std::function<void(std::exception_ptr)> on_done = {});

  /// Runs `body` after all that was pushed before, in this thread, and returns when it is done.
  /// Throws what it threw.
  void run(const std::function<void()>& body);

  /// Blocks until `task` is done, running the queue meanwhile. Throws what the task threw.
  void wait(Task& task);

  bool is_done(const Task& task) const;

  /// Whether a thread is in run() or wait().
  bool is_awaited() const { return waiters_ > 0; }

  /// Whether nothing is queued or under way.
  bool is_idle() const;

  /// Fails what has not begun, and all later operations, with `reason`; so does the operation under way
  /// if it throws. Returns whether there is one.
  bool close(std::exception_ptr reason);

  /// After close(): waits for the operation under way, in whichever thread, and ends the progress thread.
  void join();

 private:
  std::shared_ptr<Task> enqueue(std::function<void()> body, std::function<void(std::exception_ptr)> on_done);
  void run_front(std::unique_lock<std::mutex>& lock);
  void finish(std::unique_lock<std::mutex>& lock, Task& task, std::exception_ptr error);
  void work(const std::stop_token& stop);

  mutable std::mutex mutex_;  // guards all below but the joining of thread_
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<Task>> queue_;
  bool is_busy_ = false;
  bool has_worker_ = false;
  std::atomic<int> waiters_{0};
  std::exception_ptr closed_;
  std::jthread thread_;
};

}  // namespace lockstep::detail
