#include <lockstep/data/loader.h>

#include <algorithm>
#include <string>

#include <c10/util/Type.h>

#include <lockstep/base/error.h>
#include <lockstep/data/sampler.h>

#include "data/batch_random.h"
#include "data/streams.h"

namespace lockstep {
namespace {

void require_at_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw ConfigError("data", {.what = std::string("loader option ") + option + " is out of range",
                             .expected = std::to_string(least) + " or more",
                             .got = std::to_string(value)});
}

/// Calls `use` with the sampler that `spec` asks for.
template <class Use>
auto with_sampler(std::int64_t size, const LoaderOptions& options, const ShardSpec& spec, Use use) {
  const SamplerOptions order{.shuffle = options.shuffle && !spec.in_order,
                             .seed = options.seed.value_or(spec.seed)};
  if (spec.pad) return use(DistributedSampler(size, spec.num_replicas, spec.rank, order));
  return use(UnrepeatedDistributedSampler(size, spec.num_replicas, spec.rank, order));
}

class DatasetLoader final : public AnyLoader {
 public:
  DatasetLoader(std::int64_t size, detail::FetchBatch fetch, const LoaderOptions& options)
      : size_(size), fetch_(std::move(fetch)), options_(options) {}

  std::int64_t num_samples() const override { return size_; }
  std::int64_t batch_size() const override { return options_.batch_size; }

  std::int64_t num_batches(const ShardSpec& spec) const override {
    const std::int64_t samples =
        with_sampler(size_, options_, spec, [](const auto& sampler) { return sampler.num_samples(); });
    return samples / options_.batch_size + (!options_.drop_last && samples % options_.batch_size != 0);
  }

  std::unique_ptr<BatchStream> stream(const ShardSpec& spec, std::int64_t epoch,
                                      std::int64_t skip_batches) const override {
    require_at_least("epoch", epoch, 0);
    require_at_least("skip_batches", skip_batches, 0);
    detail::EpochPlan plan{.indices = indices(spec, epoch),
                           .batch_size = options_.batch_size,
                           .num_batches = num_batches(spec),
                           .seed = seed_of(spec, epoch)};
    const std::int64_t left = std::max<std::int64_t>(plan.num_batches - skip_batches, 0);
    const std::int64_t workers = std::min<std::int64_t>(options_.num_workers, left);
    if (workers == 0) return std::make_unique<detail::InlineStream>(std::move(plan), fetch_, skip_batches);
    const std::int64_t slots = std::min(workers * options_.prefetch_factor, left);
    return std::make_unique<detail::WorkerStream>(std::move(plan), fetch_, skip_batches, workers, slots);
  }

 private:
  std::uint64_t seed_of(const ShardSpec& spec, std::int64_t epoch) const {
    const auto run = options_.seed.value_or(spec.seed);
    return detail::mixed_seed(detail::mixed_seed(run, static_cast<std::uint64_t>(epoch)),
                              static_cast<std::uint64_t>(spec.rank));
  }

  std::vector<std::int64_t> indices(const ShardSpec& spec, std::int64_t epoch) const {
    return with_sampler(size_, options_, spec, [&](auto sampler) {
      sampler.set_epoch(epoch);
      return sampler.indices();
    });
  }

  std::int64_t size_;
  detail::FetchBatch fetch_;
  LoaderOptions options_;
};

}  // namespace

namespace detail {

std::shared_ptr<AnyLoader> make_loader(std::int64_t dataset_size, FetchBatch fetch,
                                       const LoaderOptions& options) {
  require_at_least("batch_size", options.batch_size, 1);
  require_at_least("num_workers", options.num_workers, 0);
  require_at_least("prefetch_factor", options.prefetch_factor, 1);
  return std::make_shared<DatasetLoader>(dataset_size, std::move(fetch), options);
}

void require_dataset(bool given) {
  if (!given) throw ConfigError("data", {.what = "a loader was given no data set", .got = "a null pointer"});
}

void throw_wrong_batch_type(const std::type_info* held, const std::type_info& asked) {
  throw ConfigError("data", {.what = "the loader's batches are not of the module's type",
                             .expected = c10::demangle(asked.name()),
                             .got = held ? c10::demangle(held->name()) : "no batch"});
}

}  // namespace detail

void check_shards(const AnyLoader& loader, const ShardSpec& spec) {
  const std::int64_t samples = loader.num_samples();
  if (samples == 0) throw DataError("data", {.what = "the data set is empty"});
  if (!spec.pad) return;
  if (samples < spec.num_replicas) {
    throw DataError("data",
                    {.what = "the data set is smaller than the world",
                     .expected = "a sample for each of " + std::to_string(spec.num_replicas) + " ranks",
                     .got = std::to_string(samples) + " samples"});
  }
  if (loader.num_batches(spec) == 0) {
    throw DataError("data", {.what = "no rank gets a batch",
                             .got = std::to_string(samples) + " samples for " +
                                    std::to_string(spec.num_replicas) + " ranks",
                             .hint = "drop_last leaves out the only batch; lower batch_size"});
  }
}

}  // namespace lockstep
