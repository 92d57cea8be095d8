#include "data/streams.h"

#include <string>
#include <system_error>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep::detail {

// When a thread cannot be started, the destructors of the others join them: they must be told to end first.
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
  if (!persistent_threads_) persistent_threads_ = std::make_shared<WorkerThreads>(count_);
  return persistent_threads_.use_count() == 1 ? persistent_threads_ : std::make_shared<WorkerThreads>(count_);
}

namespace {

AnyBatch make_batch(const BatchWork& work, const BatchTask& task, std::int64_t number) {
  const BatchSeedScope scope(mixed_seed(work.seed, static_cast<std::uint64_t>(number)));
  return task();
}

}  // namespace

bool InlineStream::next(AnyBatch& batch) {
  if (std::exchange(ended_, true)) return false;  // an error ends the stream
  const BatchTask task = work_.source->next();
  if (!task) return false;
  batch = make_batch(work_, task, next_++);
  ended_ = false;
  return true;
}

WorkerStream::WorkerStream(BatchWork work, std::shared_ptr<WorkerThreads> threads, std::int64_t slots)
    : work_(std::move(work)),
      next_to_take_(work_.first),
      next_to_give_(work_.first),
      slots_(static_cast<std::size_t>(slots)),
      threads_(std::move(threads)) {
  threads_->start([this] { this->work(); });
}

WorkerStream::~WorkerStream() {
  {
    const std::scoped_lock lock(mutex_);
    no_more_ = true;
  }
  changed_.notify_all();
  threads_->wait();
}

bool WorkerStream::next(AnyBatch& batch) {
  if (std::exchange(ended_, true)) return false;  // an error ends the stream
  std::unique_lock lock(mutex_);
  std::optional<Result>& mine = slot(next_to_give_);
  const auto is_over = [&] { return no_more_ && !taking_ && next_to_give_ == next_to_take_; };
  changed_.wait(lock, [&] { return mine.has_value() || is_over(); });
  if (!mine) return false;
  Result result = *std::exchange(mine, std::nullopt);
  if (result.error) std::rethrow_exception(result.error);
  ++next_to_give_;
  lock.unlock();
  changed_.notify_all();
  batch = std::move(result.batch);
  ended_ = false;
  return true;
}

void WorkerStream::work() {
  const auto capacity = static_cast<std::int64_t>(slots_.size());
  const auto may_take = [&] { return no_more_ || (!taking_ && next_to_take_ < next_to_give_ + capacity); };
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, may_take);
    if (no_more_) return;
    take_and_make(lock);
  }
}

void WorkerStream::take_and_make(std::unique_lock<std::mutex>& lock) {
  const std::int64_t number = next_to_take_;
  taking_ = true;
  lock.unlock();
  Result result{};
  const BatchTask task = take(result.error);
  lock.lock();
  taking_ = false;
  no_more_ = no_more_ || !task;
  if (task || result.error) ++next_to_take_;
  changed_.notify_all();
  if (task) {
    lock.unlock();
    result = make(task, number);
    lock.lock();
  }
  if (number < next_to_take_) slot(number) = std::move(result);
  changed_.notify_all();
}

BatchTask WorkerStream::take(std::exception_ptr& error) const try {
  return work_.source->next();
} catch (...) {
  error = std::current_exception();
  return {};
}

WorkerStream::Result WorkerStream::make(const BatchTask& task, std::int64_t number) const try {
  return {.batch = make_batch(work_, task, number), .error = nullptr};
} catch (...) {
  return {.batch = {}, .error = std::current_exception()};
}

}  // namespace lockstep::detail
