// Batches of a data set: in order, by worker threads if asked for, the same whatever their number; the
// position of a rank in them, and the loaders of one stage of evaluation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/data/any_loader.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/iterable_dataset.h>
#include <lockstep/data/sampler.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// How a loader makes batches.
struct LoaderOptions {
  std::int64_t batch_size = 1;  ///< samples per batch and rank
  bool shuffle = false;         ///< a new order each epoch
  bool drop_last = false;       ///< leave out a last batch that is short
  int num_workers = 0;          ///< threads that make batches ahead; 0: made when asked for
  int prefetch_factor = 2;      ///< batches that each worker may be ahead
  std::optional<std::uint64_t> seed = std::nullopt;  ///< of shuffling; none: the run's
  bool persistent_workers = false;  ///< keep the threads, and what they have in thread_local variables, for
                                    ///< the next epoch
  bool pin_memory = false;     ///< batches in page-locked memory; without a GPU a warning says it is moot
  SamplerChoice sampler = {};  ///< the order, instead of shuffle; that of a DistributedSampler is
                               ///< this rank's, whatever use_distributed_sampler says
  std::shared_ptr<const BatchSampler> batch_sampler =
      nullptr;  ///< the batches, instead of batch_size, shuffle, drop_last and sampler
};

namespace detail {

using FetchBatch = std::function<AnyBatch(std::span<const std::int64_t>)>;
/// Begins one rank's epoch behind so many items.
using OpenSource =
    std::function<std::unique_ptr<BatchSource>(const ShardSpec& spec, std::int64_t epoch, std::int64_t skip)>;
/// Items of one rank's epoch.
using CountItems = std::function<std::int64_t(const ShardSpec& spec)>;

/// The loader behind all Loader<Batch> of a Dataset. `fetch` must be thread-safe.
LOCKSTEP_API std::shared_ptr<AnyLoader> make_loader(std::int64_t dataset_size, FetchBatch fetch,
                                                    const LoaderOptions& options);
/// The same for an IterableDataset.
LOCKSTEP_API std::shared_ptr<AnyLoader> make_iterable_loader(OpenSource open, CountItems count,
                                                             const LoaderOptions& options);
LOCKSTEP_API void require_dataset(bool given);
/// Whether to pin: warns where it is asked for in vain.
LOCKSTEP_API bool pins_memory(const LoaderOptions& options);

template <class Batch>
AnyBatch any_batch(Batch made, std::int64_t size, bool pin) {
  if constexpr (requires { Batch(pin_memory(made)); }) {
    if (pin) made = pin_memory(made);
  }
  auto batch = std::make_shared<const Batch>(std::move(made));
  if constexpr (requires { batch_size(*batch); }) size = batch_size(*batch);
  return AnyBatch(std::move(batch), size);
}

/// Takes the items of a stream, a batch's at a time.
template <class Item, class Batch>
class ItemSource final : public BatchSource {
 public:
  ItemSource(std::shared_ptr<const IterableDataset<Item, Batch>> dataset,
             std::unique_ptr<ItemStream<Item>> stream, const LoaderOptions& options)
      : dataset_(std::move(dataset)),
        stream_(std::move(stream)),
        batch_size_(static_cast<std::size_t>(options.batch_size)),
        drop_last_(options.drop_last),
        pin_(pins_memory(options)) {}

  BatchTask next() override {
    auto items = std::make_shared<std::vector<Item>>();
    for (Item item; items->size() < batch_size_ && stream_->next(item);) items->push_back(std::move(item));
    if (items->empty() || (drop_last_ && items->size() < batch_size_)) return {};
    return [data = dataset_, items, pin = pin_] {
      const auto size = static_cast<std::int64_t>(items->size());
      return any_batch<Batch>(data->collate(std::move(*items)), size, pin);
    };
  }

 private:
  std::shared_ptr<const IterableDataset<Item, Batch>> dataset_;
  std::unique_ptr<ItemStream<Item>> stream_;
  std::size_t batch_size_;
  bool drop_last_;
  bool pin_;
};

}  // namespace detail

/// One epoch's batches for a range-for, once through. Its iterators may outlive it; they share its place.
template <class Batch>
class Epoch {
  struct Pass {
    std::unique_ptr<BatchStream> stream;
    AnyBatch batch;
  };

 public:
  /// Goes through the batches once.
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
  /// The first batch that is left. Blocks until it is there.
  Iterator begin() { return Iterator(pass_); }
  /// Behind the last batch.
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<Pass> pass_;
};

/// Where batches come from and how they are made. A value; copies share the data set.
template <class Batch>
class Loader {
 public:
  /// @throws ConfigError for a null data set; batch_size < 1, num_workers < 0, prefetch_factor < 1; a sampler
  ///     together with what it replaces
  Loader(DatasetPtr<Batch> dataset, const LoaderOptions& options = {})
      : dataset_(std::move(dataset)), options_(options) {
    detail::require_dataset(dataset_ != nullptr);
    const auto fetch = [data = dataset_,
                        pin = detail::pins_memory(options)](std::span<const std::int64_t> indices) {
      return detail::any_batch<Batch>(data->get_batch(indices), static_cast<std::int64_t>(indices.size()),
                                      pin);
    };
    loader_ = detail::make_loader(dataset_->size(), fetch, options_);
  }
  /// Of any loader whose batches are of type Batch.
  explicit Loader(std::shared_ptr<AnyLoader> loader, const LoaderOptions& options = {})
      : options_(options), loader_(std::move(loader)) {}

  /// Null where the batches do not come from a Dataset.
  const DatasetPtr<Batch>& dataset() const { return dataset_; }
  /// The options it was made with.
  const LoaderOptions& options() const { return options_; }
  /// As AnyLoader's.
  std::int64_t num_samples() const { return loader_->num_samples(); }
  /// Batches of an epoch of the rank that `spec` describes.
  std::int64_t num_batches(const ShardSpec& spec = {}) const { return loader_->num_batches(spec); }

  /// The batches of one epoch: `for (const Batch& batch : loader.epoch(0))`.
  Epoch<Batch> epoch(std::int64_t number, const ShardSpec& spec = {}, std::int64_t skip_batches = 0) const {
    return Epoch<Batch>(loader_->stream(spec, number, skip_batches));
  }

  /// The same loader without the type of its batches.
  operator std::shared_ptr<AnyLoader>() const { return loader_; }
  /// The same loader without the type of its batches, which stays owned by this one.
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

/// Makes a Loader of a stream of items. Its order is the stream's: whatever the number of workers, they only
/// collate.
/// @throws ConfigError as Loader's constructor, and for shuffle and samplers
template <class D>
requires requires { typename D::ItemType; }
Loader<typename D::BatchType> loader(std::shared_ptr<D> dataset, const LoaderOptions& options = {}) {
  using Item = typename D::ItemType;
  using Batch = typename D::BatchType;
  detail::require_dataset(dataset != nullptr);
  const std::shared_ptr<const IterableDataset<Item, Batch>> data = std::move(dataset);
  const auto open = [data, options](const ShardSpec& spec, std::int64_t epoch, std::int64_t skip) {
    auto stream = data->stream(spec, epoch);
    if (skip > 0) stream->skip(skip);
    return std::make_unique<detail::ItemSource<Item, Batch>>(data, std::move(stream), options);
  };
  const auto count = [data](const ShardSpec& spec) { return data->size(spec); };
  return Loader<Batch>(detail::make_iterable_loader(open, count, options), options);
}

/// The position of a rank in its data: all that is needed to continue from there, with any number of worker
/// threads. `loader.stream(spec, position.epoch, position.batches)` gives the remaining batches. Counted on
/// one rank.
struct DataPosition {
  std::int64_t epoch = 0;    ///< the current epoch, from 0
  std::int64_t batches = 0;  ///< batches of that epoch that were used

  bool operator==(const DataPosition&) const = default;
};

/// The position as checkpoints hold it.
LOCKSTEP_API StateTree state_of(const DataPosition& position);

/// @throws CheckpointError naming what is missing, of another kind or negative; nothing has changed then
LOCKSTEP_API void load_state(DataPosition& position, const StateTree& state);

/// Loaders without their batch type.
using LoaderList = std::vector<std::shared_ptr<AnyLoader>>;

/// What is evaluated in one pass: `trainer.validate(model, {common, rare})`. All give the same type of batch;
/// their order is that of StepContext::dataloader_idx().
template <class Batch>
class Loaders {
 public:
  Loaders() = default;
  Loaders(std::nullopt_t) {}
  Loaders(Loader<Batch> loader) { loaders_.push_back(std::move(loader)); }
  Loaders(std::optional<Loader<Batch>> loader) {
    if (loader) loaders_.push_back(*std::move(loader));
  }
  Loaders(std::vector<Loader<Batch>> loaders) : loaders_(std::move(loaders)) {}
  Loaders(std::initializer_list<Loader<Batch>> loaders) : loaders_(loaders) {}

  /// How many loaders there are.
  std::size_t size() const { return loaders_.size(); }
  /// Whether there is none.
  bool empty() const { return loaders_.empty(); }
  /// The loader at `index`, which must be less than size().
  const Loader<Batch>& operator[](std::size_t index) const { return loaders_[index]; }
  /// The first loader.
  auto begin() const { return loaders_.begin(); }
  /// Behind the last loader.
  auto end() const { return loaders_.end(); }

  /// The same loaders without the types of their batches.
  LoaderList any() const { return {loaders_.begin(), loaders_.end()}; }

 private:
  std::vector<Loader<Batch>> loaders_;
};

}  // namespace lockstep
