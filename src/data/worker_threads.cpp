#include "data/worker_threads.h"

#include <string>
#include <system_error>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep::detail {

// Where one cannot be made, those that were are joined as they are destroyed: they must have been told to
// end.
WorkerThreads::WorkerThreads(std::int64_t count) {
  try {
    for (std::int64_t i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error& error) {
    stop();
    throw Error("data",
                {.what = "worker thread " + std::to_string(threads_.size() + 1) + " cannot be started",
                 .expected = std::to_string(count) + " of them (num_workers)",
                 .got = error.what(),
                 .hint = "lower num_workers, or raise the limit of threads or memory"});
  }
}

WorkerThreads::~WorkerThreads() { stop(); }

void WorkerThreads::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void WorkerThreads::start(std::function<void()> work) {
  {
    const std::scoped_lock lock(mutex_);
    work_ = std::move(work);
    busy_ = static_cast<std::int64_t>(threads_.size());
    ++round_;
  }
  changed_.notify_all();
}

void WorkerThreads::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ == 0; });
  work_ = nullptr;
}

void WorkerThreads::run() {
  std::unique_lock lock(mutex_);
  for (std::int64_t done = 0;; ++done) {
    changed_.wait(lock, [&] { return stopping_ || round_ > done; });
    if (stopping_) return;
    lock.unlock();
    work_();
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
  }
}

std::shared_ptr<WorkerThreads> WorkerPool::threads() {
  if (!persistent_) return std::make_shared<WorkerThreads>(count_);
  const std::scoped_lock lock(mutex_);
  if (!kept_) kept_ = std::make_shared<WorkerThreads>(count_);
  return kept_.use_count() == 1 ? kept_ : std::make_shared<WorkerThreads>(count_);
}

}  // namespace lockstep::detail
