#include <lockstep/data/loader.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <c10/util/Type.h>
#include <lockstep/base/error.h>
#include <lockstep/data/sampler.h>

#include "base/failure_place.h"
#include "base/job_log.h"
#include "data/streams.h"

namespace lockstep::detail {
namespace {

// The batches of one rank's epoch, each a run of `indices`.
struct EpochPlan {
  std::vector<std::int64_t> indices;  ///< of this rank, in order
  std::vector<std::size_t> ends;      ///< where each batch ends in them

  std::int64_t num_batches() const { return static_cast<std::int64_t>(ends.size()); }
  /// The samples of batch `number`.
  std::span<const std::int64_t> batch(std::int64_t number) const {
    const auto i = static_cast<std::size_t>(number);
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(indices).subspan(begin, ends[i] - begin);
  }
};

// The number of its batches, without making it.
std::int64_t planned_batches(std::int64_t dataset_size, const LoaderOptions& options, const ShardSpec& spec);

/// Calls `use` with the sampler that `spec` asks for.
template <class Use>
auto with_sampler(std::int64_t size, const SamplerOptions& order, const ShardSpec& spec, Use use) {
  if (spec.pad) return use(DistributedSampler(size, spec.num_replicas, spec.rank, order));
  return use(UnrepeatedDistributedSampler(size, spec.num_replicas, spec.rank, order));
}

/// The indices below `size` that this rank gets when they are dealt to the ranks one by one.
std::vector<std::int64_t> dealt(std::int64_t size, const SamplerOptions& order, const ShardSpec& spec,
                                std::int64_t epoch) {
  return with_sampler(size, order, spec, [&](auto sampler) {
    sampler.set_epoch(epoch);
    return sampler.indices();
  });
}

std::int64_t num_dealt(std::int64_t size, const ShardSpec& spec) {
  return with_sampler(size, {}, spec, [](const auto& sampler) { return sampler.num_samples(); });
}

std::uint64_t seed_of(const LoaderOptions& options, const ShardSpec& spec) {
  return options.seed.value_or(spec.seed);
}

void require_count(const char* what, std::int64_t said, std::size_t given) {
  if (said == static_cast<std::int64_t>(given)) return;
  throw DataError("data", {.what = std::string("a sampler gave another number of ") + what + " than it said",
                           .expected = std::to_string(said),
                           .got = std::to_string(given)});
}

// What is dealt out to the ranks: all of a sampler that gives one rank's samples are that rank's.
ShardSpec dealing(const LoaderOptions& options, ShardSpec spec) {
  if (!options.sampler || !options.sampler->is_of_one_rank()) return spec;
  spec.num_replicas = 1;
  spec.rank = 0;
  return spec;
}

std::vector<std::int64_t> indices_of(std::int64_t dataset_size, const LoaderOptions& options,
                                     const ShardSpec& spec, std::int64_t epoch) {
  const auto seed = seed_of(options, spec);
  if (!options.sampler)
    return dealt(dataset_size, {.shuffle = options.shuffle && !spec.in_order, .seed = seed}, spec, epoch);
  const auto all = options.sampler->indices(epoch, seed);
  require_count("indices", options.sampler->num_samples(), all.size());
  auto mine = select(
      all, dealt(static_cast<std::int64_t>(all.size()), {.shuffle = false}, dealing(options, spec), epoch));
  check_indices(mine, dataset_size);
  return mine;
}

EpochPlan plan_of_batches(std::int64_t dataset_size, const LoaderOptions& options, const ShardSpec& spec,
                          std::int64_t epoch) {
  const auto all = options.batch_sampler->batches(epoch, seed_of(options, spec));
  require_count("batches", options.batch_sampler->num_batches(), all.size());
  EpochPlan plan;
  for (const auto number : dealt(static_cast<std::int64_t>(all.size()), {.shuffle = false}, spec, epoch)) {
    const auto& batch = all[static_cast<std::size_t>(number)];
    plan.indices.insert(plan.indices.end(), batch.begin(), batch.end());
    plan.ends.push_back(plan.indices.size());
  }
  check_indices(plan.indices, dataset_size);
  return plan;
}

class PlanSource final : public BatchSource {
 public:
  PlanSource(EpochPlan plan, FetchBatch fetch, std::int64_t first)
      : plan_(std::make_shared<const EpochPlan>(std::move(plan))),
        fetch_(std::make_shared<const FetchBatch>(std::move(fetch))),
        next_(first) {}

  BatchTask next() override {
    if (next_ >= plan_->num_batches()) return {};
    return [plan = plan_, fetch = fetch_, number = next_++] {
      const auto indices = plan->batch(number);
      auto batch = in_place("get_batch of the data set", [&] { return (*fetch)(indices); });
      batch.set_indices(std::shared_ptr<const std::int64_t>(plan, indices.data()), indices.size());
      return batch;
    };
  }

 private:
  std::shared_ptr<const EpochPlan> plan_;
  std::shared_ptr<const FetchBatch> fetch_;
  std::int64_t next_;
};

// The plan of an epoch by the order and the batches of LoaderOptions.
// @throws DataError when a sampler of the user's gives another number than it said, or a number out of range
EpochPlan plan_epoch(std::int64_t dataset_size, const LoaderOptions& options, const ShardSpec& spec,
                     std::int64_t epoch) {
  if (options.batch_sampler) return plan_of_batches(dataset_size, options, spec, epoch);
  EpochPlan plan{.indices = indices_of(dataset_size, options, spec, epoch), .ends = {}};
  const std::int64_t batches = planned_batches(dataset_size, options, spec);
  for (std::int64_t i = 1; i <= batches; ++i)
    plan.ends.push_back(std::min(static_cast<std::size_t>(i * options.batch_size), plan.indices.size()));
  return plan;
}

std::int64_t planned_batches(std::int64_t dataset_size, const LoaderOptions& options, const ShardSpec& spec) {
  if (options.batch_sampler) return num_dealt(options.batch_sampler->num_batches(), spec);
  const auto samples =
      num_dealt(options.sampler ? options.sampler->num_samples() : dataset_size, dealing(options, spec));
  return samples / options.batch_size + (!options.drop_last && samples % options.batch_size != 0);
}

// Gives the batches of `plan` from number `first` on.
std::unique_ptr<BatchSource> plan_source(EpochPlan plan, FetchBatch fetch, std::int64_t first) {
  return std::make_unique<PlanSource>(std::move(plan), std::move(fetch), first);
}

}  // namespace
}  // namespace lockstep::detail

namespace lockstep {
namespace {

void require_at_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw ConfigError("data", {.what = std::string("loader option ") + option + " is out of range",
                             .expected = std::to_string(least) + " or more",
                             .got = std::to_string(value)});
}

void refuse_together(const char* option, const char* other) {
  throw ConfigError("data", {.what = std::string("loader option ") + option + " replaces " + other,
                             .hint = std::string("leave ") + other + " as it is"});
}

void check(const LoaderOptions& options) {
  require_at_least("batch_size", options.batch_size, 1);
  require_at_least("num_workers", options.num_workers, 0);
  require_at_least("prefetch_factor", options.prefetch_factor, 1);
  if (options.sampler && options.shuffle) refuse_together("sampler", "shuffle");
  if (!options.batch_sampler) return;
  if (options.batch_size != 1) refuse_together("batch_sampler", "batch_size");
  if (options.shuffle) refuse_together("batch_sampler", "shuffle");
  if (options.drop_last) refuse_together("batch_sampler", "drop_last");
  if (options.sampler) refuse_together("batch_sampler", "sampler");
}

void check_iterable(const LoaderOptions& options) {
  const bool ordered = !options.shuffle && !options.sampler && !options.batch_sampler;
  if (ordered) return check(options);
  throw ConfigError("data", {.what = "a stream of items cannot be shuffled or sampled by a loader",
                             .hint = "let the data set order them"});
}

/// The seed of one rank's batches, to which each adds its number.
std::uint64_t batch_seed(const LoaderOptions& options, const ShardSpec& spec, std::int64_t epoch) {
  const auto run = options.seed.value_or(spec.seed);
  return detail::mixed_seed(detail::mixed_seed(run, static_cast<std::uint64_t>(epoch)),
                            static_cast<std::uint64_t>(spec.rank));
}

/// The base of the loaders of both kinds of data sets.
class LoaderBase : public AnyLoader {
 public:
  explicit LoaderBase(const LoaderOptions& options)
      : options_(options),
        pool_(std::make_shared<detail::WorkerPool>(options.num_workers, options.persistent_workers)) {}

  std::int64_t batch_size() const override { return options_.batch_size; }

  std::unique_ptr<BatchStream> stream(const ShardSpec& spec, std::int64_t epoch,
                                      std::int64_t skip_batches) const override {
    require_at_least("epoch", epoch, 0);
    require_at_least("skip_batches", skip_batches, 0);
    detail::BatchWork work{.source = source(spec, epoch, skip_batches),
                           .first = skip_batches,
                           .seed = batch_seed(options_, spec, epoch)};
    const bool inline_only = options_.num_workers == 0 || num_batches(spec) <= skip_batches;
    if (inline_only) return std::make_unique<detail::InlineStream>(std::move(work));
    return std::make_unique<detail::WorkerStream>(std::move(work), pool_->threads(),
                                                  pool_->count() * options_.prefetch_factor);
  }

 protected:
  const LoaderOptions& options() const { return options_; }
  virtual std::unique_ptr<detail::BatchSource> source(const ShardSpec& spec, std::int64_t epoch,
                                                      std::int64_t skip_batches) const = 0;

 private:
  LoaderOptions options_;
  std::shared_ptr<detail::WorkerPool> pool_;
};

class DatasetLoader final : public LoaderBase {
 public:
  DatasetLoader(std::int64_t size, detail::FetchBatch fetch, const LoaderOptions& options)
      : LoaderBase(options), size_(size), fetch_(std::move(fetch)) {}

  // With a batch_sampler, batches are counted and dealt to the ranks instead of samples.
  std::int64_t num_samples() const override {
    if (options().batch_sampler) return options().batch_sampler->num_batches();
    return options().sampler ? options().sampler->num_samples() : size_;
  }
  std::int64_t num_batches(const ShardSpec& spec) const override {
    return detail::planned_batches(size_, options(), spec);
  }
  bool is_dealt_out() const override { return !options().sampler || !options().sampler->is_of_one_rank(); }

 private:
  std::unique_ptr<detail::BatchSource> source(const ShardSpec& spec, std::int64_t epoch,
                                              std::int64_t skip_batches) const override {
    return detail::plan_source(detail::plan_epoch(size_, options(), spec, epoch), fetch_, skip_batches);
  }

  std::int64_t size_;
  detail::FetchBatch fetch_;
};

class IterableLoader final : public LoaderBase {
 public:
  IterableLoader(detail::OpenSource open, detail::CountItems count, const LoaderOptions& options)
      : LoaderBase(options), open_(std::move(open)), count_(std::move(count)) {}

  std::int64_t num_samples() const override { return kUnknownLength; }
  std::int64_t num_batches(const ShardSpec& spec) const override {
    const std::int64_t items = count_(spec);
    if (items == kUnknownLength) return kUnknownLength;
    return items / batch_size() + (!options().drop_last && items % batch_size() != 0);
  }

 private:
  std::unique_ptr<detail::BatchSource> source(const ShardSpec& spec, std::int64_t epoch,
                                              std::int64_t skip_batches) const override {
    ShardSpec seeded = spec;
    seeded.seed = options().seed.value_or(spec.seed);
    return open_(seeded, epoch, skip_batches * batch_size());
  }

  detail::OpenSource open_;
  detail::CountItems count_;
};

}  // namespace

namespace detail {

std::shared_ptr<AnyLoader> make_loader(std::int64_t dataset_size, FetchBatch fetch,
                                       const LoaderOptions& options) {
  check(options);
  return std::make_shared<DatasetLoader>(dataset_size, std::move(fetch), options);
}

std::shared_ptr<AnyLoader> make_iterable_loader(OpenSource open, CountItems count,
                                                const LoaderOptions& options) {
  check_iterable(options);
  return std::make_shared<IterableLoader>(std::move(open), std::move(count), options);
}

bool pins_memory(const LoaderOptions& options) {
  if (!options.pin_memory || at::hasCUDA()) return options.pin_memory;
  warn_once_of_job("loader.pin_memory", "pin_memory is set, but there is no GPU: batches are not pinned");
  return false;
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
  if (samples < spec.num_replicas && loader.is_dealt_out()) {
    throw DataError("data",
                    {.what = "the data set is smaller than the world",
                     .expected = "a sample for each of " + std::to_string(spec.num_replicas) + " ranks",
                     .got = std::to_string(samples) + " samples, or batches of a batch_sampler"});
  }
  if (loader.num_batches(spec) == 0) {
    throw DataError("data", {.what = "no rank gets a batch",
                             .got = (samples == kUnknownLength ? "a stream without items"
                                                               : std::to_string(samples) + " samples") +
                                    std::string(" for ") + std::to_string(spec.num_replicas) + " ranks",
                             .hint = "drop_last leaves out the only batch; lower batch_size"});
  }
}

namespace {

std::int64_t count(const StateTree& state, std::string_view name) {
  const auto value = state.get<std::int64_t>(name);
  if (value >= 0) return value;
  throw CheckpointError(
      "data",
      {.what = "data position: " + std::string(name), .expected = ">= 0", .got = std::to_string(value)});
}

}  // namespace

StateTree state_of(const DataPosition& position) {
  StateTree state;
  state.set("epoch", position.epoch);
  state.set("batches", position.batches);
  return state;
}

void load_state(DataPosition& position, const StateTree& state) {
  position = {.epoch = count(state, "epoch"), .batches = count(state, "batches")};
}

}  // namespace lockstep
