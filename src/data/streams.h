// The two ways to make the batches of an epoch: when asked for, or ahead by worker threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/data/batch_source.h>

#include "data/worker_threads.h"

namespace lockstep::detail {

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
