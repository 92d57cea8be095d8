#include "data/batch_random.h"

#include <optional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include <lockstep/data/batch_generator.h>

namespace lockstep {

struct detail::BatchRandom {
  std::optional<std::uint64_t> seed;       // of the batch that is being made
  std::optional<at::Generator> generator;  // made when first asked for
};

namespace {

using detail::BatchRandom;

BatchRandom& batch_random() {
  thread_local BatchRandom random;
  return random;
}

}  // namespace

namespace detail {

std::uint64_t mixed_seed(std::uint64_t seed, std::uint64_t number) {
  auto mixed = seed + (number + 1) * 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31);
}

BatchSeedScope::BatchSeedScope(std::uint64_t seed)
    : outer_(std::make_unique<BatchRandom>(
          std::exchange(batch_random(), BatchRandom{.seed = seed, .generator = {}}))) {}
BatchSeedScope::~BatchSeedScope() { batch_random() = std::move(*outer_); }

}  // namespace detail

at::Generator batch_generator() {
  auto& random = batch_random();
  if (!random.seed) return at::detail::getDefaultCPUGenerator();
  if (!random.generator) random.generator = at::detail::createCPUGenerator(*random.seed);
  return *random.generator;
}

}  // namespace lockstep
