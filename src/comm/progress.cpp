#include "comm/progress.h"

#include <pthread.h>

#include <chrono>
#include <stdexcept>
#include <utility>

namespace lockstep::detail {
namespace {

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace
namespace {

constexpr auto kIdle = std::chrono::seconds(2);  // starting a thread costs little more than waking one

}  // namespace

ProgressQueue::~ProgressQueue() {
  close(std::make_exception_ptr(std::logic_error("the queue is gone")));
  join();
}

std::shared_ptr<ProgressQueue::Task> ProgressQueue::enqueue(std::function<void()> body,
                                                            std::function<void(std::exception_ptr)> on_done) {
  if (closed_) std::rethrow_exception(closed_);
  auto task = std::make_shared<Task>();
  task->body_ = std::move(body);
  task->on_done_ = std::move(on_done);
  queue_.push_back(task);
  return task;
}

std::shared_ptr<ProgressQueue::Task> ProgressQueue::push(std::function<void()> body,
                                                         std::function<void(std::exception_ptr)> on_done) {
  const std::lock_guard lock(mutex_);
  auto task = enqueue(std::move(body), std::move(on_done));
  if (!std::exchange(has_worker_, true)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });  // one that ended is joined
  }
  changed_.notify_all();
  return task;
}

void ProgressQueue::run(const std::function<void()>& body) {
  std::shared_ptr<Task> task;
  {
    const std::lock_guard lock(mutex_);
    task = enqueue(body, {});
  }
  wait(*task);
}

void ProgressQueue::wait(Task& task) {
  const Counted waiter(waiters_);
  std::unique_lock lock(mutex_);
  while (!task.is_done_) {
    if (!is_busy_ && !queue_.empty()) {
      run_front(lock);
    } else {
      changed_.wait(lock, [&] { return task.is_done_ || (!is_busy_ && !queue_.empty()); });
    }
  }
  if (task.error_) std::rethrow_exception(task.error_);
}

bool ProgressQueue::is_done(const Task& task) const {
  const std::lock_guard lock(mutex_);
  return task.is_done_;
}

bool ProgressQueue::is_idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !is_busy_;
}

bool ProgressQueue::close(std::exception_ptr reason) {
  std::unique_lock lock(mutex_);
  if (!closed_) closed_ = reason;
  for (const auto& task : std::exchange(queue_, {})) finish(lock, *task, closed_);
  return is_busy_;
}

void ProgressQueue::join() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_busy_; });
  }
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void ProgressQueue::run_front(std::unique_lock<std::mutex>& lock) {
  const auto task = queue_.front();
  queue_.pop_front();
  is_busy_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    task->body_();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  is_busy_ = false;
  if (error && closed_) error = closed_;
  finish(lock, *task, error);
}

// Frees the body first: what it captured may be the last reference to a tensor.
void ProgressQueue::finish(std::unique_lock<std::mutex>& lock, Task& task, std::exception_ptr error) {
  task.body_ = nullptr;
  task.error_ = error;
  task.is_done_ = true;
  const auto on_done = std::exchange(task.on_done_, nullptr);
  changed_.notify_all();
  if (!on_done) return;
  lock.unlock();
  on_done(error);
  lock.lock();
}

void ProgressQueue::work(const std::stop_token& stop) {
  ::pthread_setname_np(::pthread_self(), "ls_progress");
  std::unique_lock lock(mutex_);
  const auto has_work = [&] { return !is_busy_ && !queue_.empty(); };
  while (!stop.stop_requested()) {
    if (changed_.wait_for(lock, stop, kIdle, has_work)) {
      run_front(lock);
    } else if (!is_busy_) {
      break;
    }
  }
  has_worker_ = false;
}

}  // namespace lockstep::detail
