#include <lockstep/data/sampler.h>

#include <algorithm>
#include <numeric>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

void check_replicas(std::int64_t size, int num_replicas, int rank) {
  if (size < 0)
    throw ConfigError("data", {.what = "a sampler needs a size of 0 or more", .got = std::to_string(size)});
  if (num_replicas >= 1 && rank >= 0 && rank < num_replicas) return;
  throw ConfigError("data", {.what = "a sampler's rank is not one of its replicas",
                             .expected = "0 <= rank < num_replicas",
                             .got = "rank " + std::to_string(rank) + " of " + std::to_string(num_replicas)});
}

/// All samples in the order of that epoch.
std::vector<std::int64_t> ordered(std::int64_t size, const SamplerOptions& options, std::int64_t epoch) {
  if (options.shuffle) return random_permutation(size, options.seed + static_cast<std::uint64_t>(epoch));
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::int64_t samples_per_rank(std::int64_t size, int num_replicas, bool drop_last) {
  return (drop_last ? size : size + num_replicas - 1) / num_replicas;
}

}  // namespace

Sampler::~Sampler() = default;
BatchSampler::~BatchSampler() = default;

std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor order = at::randperm(size, generator, at::TensorOptions().dtype(at::kLong));
  const auto* begin = order.const_data_ptr<std::int64_t>();
  return {begin, begin + size};
}

DistributedSampler::DistributedSampler(std::int64_t size, int num_replicas, int rank,
                                       const SamplerOptions& options)
    : size_(size), num_replicas_(num_replicas), rank_(rank), options_(options) {
  check_replicas(size, num_replicas, rank);
  num_samples_ = samples_per_rank(size, num_replicas, options.drop_last);
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch, std::uint64_t) const {
  const std::vector<std::int64_t> order = ordered(size_, options_, epoch);
  std::vector<std::int64_t> mine(static_cast<std::size_t>(num_samples_));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i] =
        order[(static_cast<std::size_t>(rank_) + i * static_cast<std::size_t>(num_replicas_)) % order.size()];
  }
  return mine;
}

UnrepeatedDistributedSampler::UnrepeatedDistributedSampler(std::int64_t size, int num_replicas, int rank,
                                                           const SamplerOptions& options)
    : size_(size), num_replicas_(num_replicas), rank_(rank), options_(options) {
  check_replicas(size, num_replicas, rank);
}

std::int64_t UnrepeatedDistributedSampler::num_samples() const {
  return samples_per_rank(std::max<std::int64_t>(size_ - rank_, 0), num_replicas_, false);
}

std::vector<std::int64_t> UnrepeatedDistributedSampler::indices(std::int64_t epoch, std::uint64_t) const {
  const std::vector<std::int64_t> order = ordered(size_, options_, epoch);
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(num_samples()));
  for (std::int64_t i = rank_; i < size_; i += num_replicas_)
    mine.push_back(order[static_cast<std::size_t>(i)]);
  return mine;
}

}  // namespace lockstep
