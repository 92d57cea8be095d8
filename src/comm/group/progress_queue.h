// A queue that runs operations strictly in the order of their issue.
//
// Gloo tags messages by issue order and an ordered all-reduce is two exchanges, so the collectives of
// one group may never overlap. The queue has no fixed worker: whoever waits for an operation runs the
// queue itself, and a blocking call that finds the queue idle never changes thread. The progress
// thread, started by an asynchronous operation, does what nobody waits for, and ends when there has been
// nothing to do for a while.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include <lockstep/base/export.h>

#include "comm/fork_guard.h"

namespace lockstep::detail {

class LOCKSTEP_API ProgressQueue {
  struct State;

 public:
  /// An operation, its state guarded by the queue's mutex.
  class Task {
    friend struct State;
    std::function<void()> body_;
    std::exception_ptr error_;
    bool is_done_ = false;
  };

  ProgressQueue();
  /// May run in the progress thread itself: an operation may hold the last owner of the queue.
  ~ProgressQueue();
  ProgressQueue(const ProgressQueue&) = delete;
  ProgressQueue& operator=(const ProgressQueue&) = delete;

  // Those that take an operation, or wait for one, @throw CommError in a forked child.

  /// Queues `body`.
  std::shared_ptr<Task> push(std::function<void()> body);

  /// Runs `body` after all that was pushed before, in this thread, and returns when it is done.
  /// Throws what it threw.
  void run(std::function<void()> body);

  /// Blocks until `task` is done, running the queue meanwhile. Throws what the task threw.
  void wait(Task& task);

  bool is_done(const Task& task) const;

  /// Whether a thread is in run() or wait().
  bool is_awaited() const;

  /// Whether nothing is queued or under way.
  bool is_idle() const;

  /// Fails what has not begun, and all later operations, with `reason`; so does the operation under way
  /// if it throws. Returns whether there is one.
  bool close(std::exception_ptr reason);

  /// After close(): waits for the operation under way, in whichever thread, and ends the progress thread.
  void join();

 private:
  // Shared with the progress thread, which may be the one that ends the queue.
  const std::shared_ptr<State> state_;
  HomeProcess home_;
  std::jthread thread_;
};

}  // namespace lockstep::detail
