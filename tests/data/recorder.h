// Data for tests of loaders: a batch is the list of what it is made of.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/data/iterable_dataset.h>
#include <lockstep/data/loader.h>

namespace lockstep::test {

using Indices = std::vector<std::int64_t>;
using Batches = std::vector<Indices>;

/// A batch is the list of its indices; `before` runs in the thread that makes it.
class Recorder final : public Dataset<Indices> {
 public:
  using Before = std::function<void(std::span<const std::int64_t>)>;
  explicit Recorder(
      std::int64_t size, Before before = [](auto) {})
      : size_(size), before_(std::move(before)) {}

  std::int64_t size() const override { return size_; }
  Indices get_batch(std::span<const std::int64_t> indices) const override {
    ++calls_;
    before_(indices);
    return {indices.begin(), indices.end()};
  }
  int calls() const { return calls_; }

 private:
  std::int64_t size_;
  Before before_;
  mutable std::atomic<int> calls_ = 0;
};

/// A stream of numbers: rank r of epoch e gives e * 1000 + r * 100 + 0, 1, ..., `sizes[r]` of them.
class Counter final : public IterableDataset<std::int64_t, Indices> {
 public:
  explicit Counter(
      Indices sizes, Recorder::Before before = [](auto) {})
      : sizes_(std::move(sizes)), before_(std::move(before)) {}

  std::unique_ptr<ItemStream<std::int64_t>> stream(const ShardSpec& spec, std::int64_t epoch) const override {
    const std::int64_t first = 1000 * epoch + 100 * spec.rank;
    return std::make_unique<Stream>(first, first + sizes_.at(static_cast<std::size_t>(spec.rank)));
  }
  Indices collate(std::vector<std::int64_t> items) const override {
    before_(items);
    return items;
  }

 private:
  class Stream final : public ItemStream<std::int64_t> {
   public:
    Stream(std::int64_t next, std::int64_t end) : next_(next), end_(end) {}
    bool next(std::int64_t& item) override {
      if (next_ == end_) return false;
      item = next_++;
      return true;
    }

   private:
    std::int64_t next_;
    std::int64_t end_;
  };

  Indices sizes_;
  Recorder::Before before_;
};

template <class Batch>
std::vector<Batch> batches_of(const Loader<Batch>& loader, std::int64_t epoch = 0, const ShardSpec& spec = {},
                              std::int64_t skip = 0) {
  std::vector<Batch> all;
  for (const Batch& batch : loader.epoch(epoch, spec, skip)) all.push_back(batch);
  return all;
}

/// Expects that an epoch can be begun with any of its batches.
template <class Batch>
bool resumes_anywhere(const Loader<Batch>& loader, std::int64_t epoch = 0, const ShardSpec& spec = {}) {
  const auto all = batches_of(loader, epoch, spec);
  for (std::size_t skip = 0; skip <= all.size() + 1; ++skip) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(std::min(skip, all.size()));
    const auto rest = batches_of(loader, epoch, spec, static_cast<std::int64_t>(skip));
    if (rest != std::vector<Batch>(begin, all.end())) return false;
  }
  return true;
}

}  // namespace lockstep::test
