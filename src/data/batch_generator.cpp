#include <lockstep/data/batch_generator.h>

#include <optional>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include <lockstep/base/error.h>

#include "data/streams.h"

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

namespace {

using Wide = unsigned __int128;

void require_16_bits(const char* what, int value) {
  if (value >= 0 && value <= 0xFFFF) return;
  throw ConfigError("data", {.what = std::string("worker_seed: ") + what + " is out of range",
                             .expected = "0 to 65535",
                             .got = std::to_string(value)});
}

}  // namespace

// lightning/fabric/utilities/seed.py: the finalizer of MurmurHash3, then Knuth's linear congruential
// generator.
std::uint64_t worker_seed(std::uint64_t seed, int worker, int rank) {
  require_16_bits("worker", worker);
  require_16_bits("rank", rank);
  // Python's numbers have no end: bits above 64 count in the first shift.
  Wide whole = Wide{seed} << 32 | static_cast<Wide>(worker) << 16 | static_cast<Wide>(rank);
  whole ^= whole >> 33;
  auto mixed = static_cast<std::uint64_t>(whole) * 0xFF51AFD7ED558CCDU;
  mixed ^= mixed >> 33;
  mixed *= 0xC4CEB9FE1A85EC53U;
  mixed ^= mixed >> 33;
  return mixed * 6364136223846793005U + 1;
}

}  // namespace lockstep
