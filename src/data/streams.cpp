#include "data/streams.h"

#include <algorithm>
#include <utility>

#include "data/batch_random.h"

namespace lockstep::detail {
namespace {

AnyBatch make_batch(const EpochPlan& plan, const FetchBatch& fetch, std::int64_t number) {
  const BatchSeedScope scope(mixed_seed(plan.seed, static_cast<std::uint64_t>(number)));
  return fetch(plan.batch(number));
}

}  // namespace

InlineStream::InlineStream(EpochPlan plan, FetchBatch fetch, std::int64_t first)
    : plan_(std::move(plan)), fetch_(std::move(fetch)), next_(first) {}

bool InlineStream::next(AnyBatch& batch) {
  if (next_ >= plan_.num_batches) return false;
  const std::int64_t number = std::exchange(next_, plan_.num_batches);  // an error ends the stream
  batch = make_batch(plan_, fetch_, number);
  next_ = number + 1;
  return true;
}

WorkerStream::WorkerStream(EpochPlan plan, FetchBatch fetch, std::int64_t first, std::int64_t num_workers,
                           std::int64_t slots)
    : plan_(std::move(plan)),
      fetch_(std::move(fetch)),
      next_to_make_(first),
      next_to_give_(first),
      slots_(static_cast<std::size_t>(slots)) {
  for (std::int64_t i = 0; i < num_workers; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

WorkerStream::~WorkerStream() {
  for (std::jthread& worker : workers_) worker.request_stop();  // all at once; then they are joined
}

bool WorkerStream::next(AnyBatch& batch) {
  std::unique_lock lock(mutex_);
  if (next_to_give_ >= plan_.num_batches) return false;
  std::optional<Result>& mine = slot(next_to_give_);
  changed_.wait(lock, [&] { return mine.has_value(); });
  Result result = *std::exchange(mine, std::nullopt);
  next_to_give_ = result.error ? plan_.num_batches : next_to_give_ + 1;
  lock.unlock();
  changed_.notify_all();
  if (result.error) std::rethrow_exception(result.error);
  batch = std::move(result.batch);
  return true;
}

void WorkerStream::work(const std::stop_token& stop) {
  const auto capacity = static_cast<std::int64_t>(slots_.size());
  const auto finished = [&] { return std::max(next_to_make_, next_to_give_) >= plan_.num_batches; };
  const auto may_make = [&] { return finished() || next_to_make_ < next_to_give_ + capacity; };
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, may_make) && !finished() && !stop.stop_requested()) {
    const std::int64_t number = next_to_make_++;
    lock.unlock();
    Result result = make(number);
    lock.lock();
    slot(number) = std::move(result);
    changed_.notify_all();
  }
}

WorkerStream::Result WorkerStream::make(std::int64_t number) const try {
  return {.batch = make_batch(plan_, fetch_, number), .error = nullptr};
} catch (...) {
  return {.batch = {}, .error = std::current_exception()};
}

}  // namespace lockstep::detail
