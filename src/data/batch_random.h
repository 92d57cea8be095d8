// Which random generator batch_generator() gives.
#pragma once

#include <cstdint>
#include <memory>

namespace lockstep::detail {

/// A seed made of two, such that neighbours have nothing in common.
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
std::uint64_t mixed_seed(std::uint64_t seed, std::uint64_t number);

struct BatchRandom;

/// While this lives, this thread makes the batch of that seed.
class BatchSeedScope {
 public:
  explicit BatchSeedScope(std::uint64_t seed);
  ~BatchSeedScope();
  BatchSeedScope(const BatchSeedScope&) = delete;
  BatchSeedScope& operator=(const BatchSeedScope&) = delete;

 private:
  std::unique_ptr<BatchRandom> outer_;  // a data set may run another loader as it makes its batch
};

}  // namespace lockstep::detail
