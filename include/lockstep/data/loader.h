// Batches of a data set: in order, by worker threads if asked for, the same whatever their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <lockstep/base/export.h>
#include <lockstep/data/any_loader.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/example.h>

namespace lockstep {

/// How a loader makes batches.
struct LoaderOptions {
  std::int64_t batch_size = 1;  ///< samples per batch and rank
  bool shuffle = false;         ///< a new order each epoch
  bool drop_last = false;       ///< leave out a last batch that is short
  int num_workers = 0;          ///< threads that make batches ahead; 0: made when asked for
  int prefetch_factor = 2;      ///< batches that each worker may be ahead
  std::optional<std::uint64_t> seed = std::nullopt;  ///< of shuffling; none: the run's
};

namespace detail {

using FetchBatch = std::function<AnyBatch(std::span<const std::int64_t>)>;

/// The loader behind all Loader<Batch>. `fetch` must be thread-safe.
LOCKSTEP_API std::shared_ptr<AnyLoader> make_loader(std::int64_t dataset_size, FetchBatch fetch,
                                                    const LoaderOptions& options);
LOCKSTEP_API void require_dataset(bool given);

template <class Batch>
AnyBatch fetch_batch(const Dataset<Batch>& dataset, std::span<const std::int64_t> indices) {
  auto batch = std::make_shared<const Batch>(dataset.get_batch(indices));
  auto size = static_cast<std::int64_t>(indices.size());
  if constexpr (requires { batch_size(*batch); }) size = batch_size(*batch);
  return AnyBatch(std::move(batch), size);
}

}  // namespace detail

/// One epoch's batches for a range-for, once through. Its iterators may outlive it; they share its place.
template <class Batch>
class Epoch {
  struct Pass {
    std::unique_ptr<BatchStream> stream;
    AnyBatch batch;
  };

 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = const Batch*;
    using reference = const Batch&;

    explicit Iterator(std::shared_ptr<Pass> pass) : pass_(std::move(pass)) { ++*this; }
    reference operator*() const { return pass_->batch.template get<Batch>(); }
    pointer operator->() const { return &**this; }
    Iterator& operator++() {
      more_ = pass_->stream->next(pass_->batch);
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !more_; }

   private:
    std::shared_ptr<Pass> pass_;
    bool more_ = false;
  };

  explicit Epoch(std::unique_ptr<BatchStream> stream)
      : pass_(std::make_shared<Pass>(Pass{std::move(stream), {}})) {}
  Iterator begin() { return Iterator(pass_); }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<Pass> pass_;
};

/// A data set and how to make batches of it. A value; copies share the data set.
template <class Batch>
class Loader {
 public:
  /// @throws ConfigError for a null data set, batch_size < 1, num_workers < 0, prefetch_factor < 1
  Loader(DatasetPtr<Batch> dataset, const LoaderOptions& options = {})
      : dataset_(std::move(dataset)), options_(options) {
    detail::require_dataset(dataset_ != nullptr);
    loader_ = detail::make_loader(
        dataset_->size(),
        [data = dataset_](std::span<const std::int64_t> indices) {
          return detail::fetch_batch(*data, indices);
        },
        options_);
  }

  const DatasetPtr<Batch>& dataset() const { return dataset_; }
  const LoaderOptions& options() const { return options_; }
  std::int64_t num_samples() const { return loader_->num_samples(); }
  std::int64_t num_batches(const ShardSpec& spec = {}) const { return loader_->num_batches(spec); }

  /// The batches of one epoch: `for (const Batch& batch : loader.epoch(0))`.
  Epoch<Batch> epoch(std::int64_t number, const ShardSpec& spec = {}, std::int64_t skip_batches = 0) const {
    return Epoch<Batch>(loader_->stream(spec, number, skip_batches));
  }

  operator std::shared_ptr<AnyLoader>() const { return loader_; }
  const AnyLoader& any() const { return *loader_; }

 private:
  DatasetPtr<Batch> dataset_;
  LoaderOptions options_;
  std::shared_ptr<AnyLoader> loader_;
};

/// Makes a Loader of any data set: `loader(train, {.batch_size = 32, .shuffle = true})`.
/// @throws ConfigError as Loader's constructor
template <class D>
Loader<typename D::BatchType> loader(std::shared_ptr<D> dataset, const LoaderOptions& options = {}) {
  return {std::move(dataset), options};
}

}  // namespace lockstep
