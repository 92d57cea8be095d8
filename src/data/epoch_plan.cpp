#include "data/epoch_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/data/sampler.h>

namespace lockstep::detail {
namespace {

/// Calls `use` with the sampler that `spec` asks for.
template <class Use>
auto with_sampler(std::int64_t size, const SamplerOptions& order, const ShardSpec& spec, Use use) {
  if (spec.pad) return use(DistributedSampler(size, spec.num_replicas, spec.rank, order));
  return use(UnrepeatedDistributedSampler(size, spec.num_replicas, spec.rank, order));
}

/// Which of `size` things, dealt out one by one, that rank gets.
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

std::vector<std::int64_t> indices_of(std::int64_t dataset_size, const LoaderOptions& options,
                                     const ShardSpec& spec, std::int64_t epoch) {
  const auto seed = seed_of(options, spec);
  if (!options.sampler)
    return dealt(dataset_size, {.shuffle = options.shuffle && !spec.in_order, .seed = seed}, spec, epoch);
  const auto all = options.sampler->indices(epoch, seed);
  require_count("indices", options.sampler->num_samples(), all.size());
  auto mine = select(all, dealt(static_cast<std::int64_t>(all.size()), {.shuffle = false}, spec, epoch));
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
      auto batch = (*fetch)(indices);
      batch.set_indices(std::shared_ptr<const std::int64_t>(plan, indices.data()), indices.size());
      return batch;
    };
  }

 private:
  std::shared_ptr<const EpochPlan> plan_;
  std::shared_ptr<const FetchBatch> fetch_;
  std::int64_t next_;
};

}  // namespace

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
  const auto samples = num_dealt(options.sampler ? options.sampler->num_samples() : dataset_size, spec);
  return samples / options.batch_size + (!options.drop_last && samples % options.batch_size != 0);
}

std::unique_ptr<BatchSource> plan_source(EpochPlan plan, FetchBatch fetch, std::int64_t first) {
  return std::make_unique<PlanSource>(std::move(plan), std::move(fetch), first);
}

}  // namespace lockstep::detail
