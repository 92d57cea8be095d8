// The two ways to make the batches of an epoch: when asked for, or ahead by worker threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <lockstep/data/loader.h>

#include "data/epoch_plan.h"

namespace lockstep::detail {

/// Makes each batch in next(), on the caller's thread.
class InlineStream final : public BatchStream {
 public:
  /// Starts with batch number `first`.
  InlineStream(EpochPlan plan, FetchBatch fetch, std::int64_t first);
  bool next(AnyBatch& batch) override;

 private:
  EpochPlan plan_;
  FetchBatch fetch_;
  std::int64_t next_;
};

/// Workers take the next batch number each, and are never more than `slots` batches ahead of the caller.
class WorkerStream final : public BatchStream {
 public:
  /// Starts with batch number `first`.
  WorkerStream(EpochPlan plan, FetchBatch fetch, std::int64_t first, std::int64_t num_workers,
               std::int64_t slots);
  ~WorkerStream() override;
  bool next(AnyBatch& batch) override;

 private:
  struct Result {
    AnyBatch batch;
    std::exception_ptr error;
  };

  void work(const std::stop_token& stop);
  Result make(std::int64_t number) const;
  std::optional<Result>& slot(std::int64_t number) {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }

  const EpochPlan plan_;
  const FetchBatch fetch_;
  std::mutex mutex_;  // guards the four below
  std::condition_variable_any changed_;
  std::int64_t next_to_make_;
  std::int64_t next_to_give_;
  std::vector<std::optional<Result>> slots_;
  std::vector<std::jthread> workers_;  // last: joined before what they use goes
};

}  // namespace lockstep::detail
