// The two ways to make the batches of an epoch: when asked for, or ahead by worker threads; and those
// threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/data/any_loader.h>

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

/// The batches of a source, and what else they are made of.
struct BatchWork {
  std::unique_ptr<BatchSource> source;
  std::int64_t first = 0;  ///< number of the source's first batch in the epoch
  std::uint64_t seed = 0;  ///< of batch_generator(), but for the batch's number
};

/// Makes each batch in next(), on the caller's thread.
class InlineStream final : public BatchStream {
 public:
  explicit InlineStream(BatchWork work) : work_(std::move(work)), next_(work_.first) {}
  bool next(AnyBatch& batch) override;

 private:
  BatchWork work_;
  std::int64_t next_;
  bool ended_ = false;
};

/// Workers take the next task each, and are never more than `slots` batches ahead of the caller.
class WorkerStream final : public BatchStream {
 public:
  /// `threads`: for this stream alone, as long as it lives.
  WorkerStream(BatchWork work, std::shared_ptr<WorkerThreads> threads, std::int64_t slots);
  ~WorkerStream() override;
  bool next(AnyBatch& batch) override;

 private:
  struct Result {
    AnyBatch batch;
    std::exception_ptr error;
  };

  void work();
  void take_and_make(std::unique_lock<std::mutex>& lock);
  BatchTask take(std::exception_ptr& error) const;
  Result make(const BatchTask& task, std::int64_t number) const;
  std::optional<Result>& slot(std::int64_t number) {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }

  const BatchWork work_;
  std::mutex mutex_;  // guards the five below
  std::condition_variable changed_;
  std::int64_t next_to_take_;
  std::int64_t next_to_give_;
  bool taking_ = false;   // a worker asks the source
  bool no_more_ = false;  // to be taken: the source has ended, or nobody wants more
  std::vector<std::optional<Result>> slots_;
  bool ended_ = false;  // of the caller's thread alone
  std::shared_ptr<WorkerThreads> threads_;
};

}  // namespace lockstep::detail
