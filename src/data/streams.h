// How the batches of an epoch are made: when asked for, or ahead by worker threads; and the random generator
// that each batch gets.
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

/// Threads that all run the same function once for each start().
class WorkerThreads {
 public:
  explicit WorkerThreads(std::int64_t count);
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Makes each thread call `work`, which must not throw. The previous work must be done.
  void start(std::function<void()> work);
  /// Blocks until all threads have done so.
  void wait();

 private:
  void run();
  void stop();

  std::mutex mutex_;  // guards the four below
  std::condition_variable changed_;
  std::function<void()> work_;
  std::int64_t round_ = 0;  // of work, counted from 1
  std::int64_t busy_ = 0;   // threads that have not finished the last round yet
  bool stopping_ = false;
  std::vector<std::jthread> threads_;  // last: joined before what they use goes
};

/// Provides threads: with `persistent` the same ones each time, unless another stream uses them; otherwise
/// new ones.
class WorkerPool {
 public:
  WorkerPool(std::int64_t count, bool persistent) : count_(count), persistent_(persistent) {}
  std::int64_t count() const { return count_; }
  std::shared_ptr<WorkerThreads> threads();

 private:
  std::int64_t count_;
  bool persistent_;
  std::mutex mutex_;
  std::shared_ptr<WorkerThreads> persistent_threads_;
};

/// A source of batches, with the numbers that the random generators of its batches are seeded by.
struct BatchWork {
  std::unique_ptr<BatchSource> source;
  std::int64_t first = 0;  ///< number of the source's first batch in the epoch
  std::uint64_t seed = 0;  ///< of batch_generator(), without the batch's number
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

/// Makes batches by worker threads, which take one task at a time and are at most `slots` batches ahead of
/// the caller.
class WorkerStream final : public BatchStream {
 public:
  /// `threads` must not be used by others while this stream lives.
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
  bool taking_ = false;   // a worker is asking the source for a task
  bool no_more_ = false;  // the source has ended, or the stream is being destroyed
  std::vector<std::optional<Result>> slots_;
  bool ended_ = false;  // used by the caller's thread alone
  std::shared_ptr<WorkerThreads> threads_;
};

/// A seed made of two numbers, such that neighbouring numbers give unrelated seeds.
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
std::uint64_t mixed_seed(std::uint64_t seed, std::uint64_t number);

struct BatchRandom;

/// While it lives, batch_generator() of this thread is seeded with `seed`.
class BatchSeedScope {
 public:
  explicit BatchSeedScope(std::uint64_t seed);
  ~BatchSeedScope();
  BatchSeedScope(const BatchSeedScope&) = delete;
  BatchSeedScope& operator=(const BatchSeedScope&) = delete;

 private:
  std::unique_ptr<BatchRandom> outer_;  // a data set may run another loader as it makes its batch
};

}  // namespace lockstep::detail
